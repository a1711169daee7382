// Copies between the memory of two processes, and deregistration meanwhile.
#include "device/local/remote_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "device/local/shared_memory.h"

namespace weft::device {
namespace {

using inbox::begins_revocation;
using inbox::ends_revocation;

// The lists of the last copy that was made by one of the calls below.
struct Recorded {
  std::vector<std::size_t> sizes_here;
  std::vector<std::size_t> sizes_there;
};
thread_local Recorded recorded;

std::vector<std::size_t> sizes(const iovec* pieces, unsigned long count) {
  std::vector<std::size_t> all;
  for (const iovec& piece : std::span(pieces, count)) all.push_back(piece.iov_len);
  return all;
}

ssize_t record(long call, pid_t pid, const iovec* here, unsigned long here_count,
               const iovec* there, unsigned long there_count, unsigned long flags) {
  recorded = {sizes(here, here_count), sizes(there, there_count)};
  return syscall(call, pid, here, here_count, there, there_count, flags);
}

}  // namespace
}  // namespace weft::device

// Instead of the C library's, for this program only.
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* here, unsigned long here_count,
                                     const iovec* there, unsigned long there_count,
                                     unsigned long flags) {
  using weft::device::record;
  return record(SYS_process_vm_writev, pid, here, here_count, there, there_count, flags);
}
extern "C" ssize_t process_vm_readv(pid_t pid, const iovec* here, unsigned long here_count,
                                    const iovec* there, unsigned long there_count,
                                    unsigned long flags) {
  using weft::device::record;
  return record(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}

namespace weft::device {
namespace {

constexpr std::size_t bytes = 1 << 20;

// Private memory that has the same address in this process and in its child.
std::byte* map() {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<std::byte*>(at);
}

void fill(std::byte* at, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(seed + i * 31 + i / 253);
}

constexpr auto granted = [] { return true; };

// An inbox in memory that this process and its children share.
struct SharedInbox {
  SharedInbox()
      : at(mmap(nullptr, sizeof(inbox::Inbox), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0)),
        inbox(*new (at) inbox::Inbox) {
    inbox.open = 1;
  }
  ~SharedInbox() { munmap(at, sizeof(inbox::Inbox)); }

  void* at;
  inbox::Inbox& inbox;
};

// A child that waits, with memory that has the same address here and there.
class Child : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(mark_.make());
    child_ = map();
    fill(child_, 1);
    pid_ = fork();
    if (pid_ == 0) {
      while (true) pause();
    }
    ASSERT_GT(pid_, 0);
    peer_ = std::make_shared<const PeerProcess>(pid_, mark_.name(), GrantView());
    here_.resize(bytes);
    if (peer_->check_mark() == EPERM) GTEST_SKIP() << "process_vm_readv is refused";
    copy_.emplace(inbox_.inbox, *peer_);
  }
  void TearDown() override {
    end_child();
    munmap(child_, bytes);
  }
  void end_child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  // Cuts `length` bytes from `at` into pieces of odd sizes, empty ones among them.
  static std::vector<iovec> cut(std::byte* at, std::size_t length, unsigned seed,
                                std::size_t largest) {
    std::mt19937 random(seed);
    std::vector<iovec> pieces;
    for (std::size_t done = 0; done < length;) {
      const std::size_t part = std::min<std::size_t>(random() % largest, length - done);
      pieces.push_back({at + done, part});
      done += part;
    }
    return pieces;
  }

  [[nodiscard]] int write(std::span<const iovec> from, std::span<const iovec> to) {
    return copy_->run(RemoteCopy::Purpose::write, from, to, granted);
  }
  [[nodiscard]] int read(std::span<const iovec> to, std::span<const iovec> from) {
    return copy_->run(RemoteCopy::Purpose::read, to, from, granted);
  }

  ProcessMark mark_;
  SharedInbox inbox_;
  std::byte* child_ = nullptr;  // its address in the child
  pid_t pid_ = 0;
  std::shared_ptr<const PeerProcess> peer_;
  std::optional<RemoteCopy> copy_;
  std::vector<std::byte> here_;
};

TEST_F(Child, IsReadInAnyPieces) {
  unsigned seed = 1;
  for (const std::size_t ours : {std::size_t{7}, std::size_t{1000}, bytes + 1}) {
    for (const std::size_t theirs : {std::size_t{11}, std::size_t{5000}, bytes + 1}) {
      std::memset(here_.data(), 0, bytes);
      const std::size_t length = std::min(ours, theirs) < 100 ? 20'000 : bytes;
      const auto to = cut(here_.data(), length, ++seed, ours);
      const auto from = cut(child_, length, ++seed, theirs);
      ASSERT_EQ(read(to, from), 0) << ours << " " << theirs;
      ASSERT_EQ(std::memcmp(here_.data(), child_, length), 0) << ours << " " << theirs;
    }
  }
}

TEST_F(Child, IsWrittenInAnyPieces) {
  fill(here_.data(), 77);
  const auto from = cut(here_.data(), bytes, 5, 3000);
  const auto to = cut(child_, bytes, 6, 700);
  ASSERT_EQ(write(from, to), 0);
  std::vector<std::byte> back(bytes);
  const iovec all{back.data(), bytes};
  const iovec there{child_, bytes};
  ASSERT_EQ(read({&all, 1}, {&there, 1}), 0);
  EXPECT_EQ(std::memcmp(back.data(), here_.data(), bytes), 0);
  fill(here_.data(), 1);
  EXPECT_EQ(std::memcmp(child_, here_.data(), bytes), 0) << "the parent's own copy has changed";
}

// A program that watches the last byte of a write finds all bytes before it. The kernel copies the
// pieces of its lists in their order, and the bytes of one piece in any.
TEST_F(Child, TheLastCacheLineOfAWriteIsAPieceOfItsOwn) {
  std::byte* const aligned =
      here_.data() + (64 - reinterpret_cast<std::uintptr_t>(here_.data()) % 64) % 64;
  // The first piece of each list is the mark of the process.
  const iovec here{aligned, 4096};
  const iovec there{child_ + 24, 4096};
  ASSERT_EQ(write({&here, 1}, {&there, 1}), 0);
  EXPECT_EQ(recorded.sizes_here, (std::vector<std::size_t>{8, 4096 - 24, 24}));
  EXPECT_EQ(recorded.sizes_there, (std::vector<std::size_t>{8, 4096}));
  // Within one cache line there is nothing to order.
  const iovec line_here{aligned + 8, 64};
  const iovec line_there{child_, 64};
  ASSERT_EQ(write({&line_here, 1}, {&line_there, 1}), 0);
  EXPECT_EQ(recorded.sizes_here, (std::vector<std::size_t>{8, 64}));
  // The pieces of this end divide it further.
  const iovec parts_here[] = {{aligned, 100}, {aligned + 200, 92}};
  const iovec parts_there{child_ + 64, 192};
  ASSERT_EQ(write(parts_here, {&parts_there, 1}), 0);
  EXPECT_EQ(recorded.sizes_here, (std::vector<std::size_t>{8, 100, 28, 64}));
  // A write that this end fetches: its own memory is the target.
  const iovec target{aligned + 64, 72};
  const iovec source{child_, 72};
  ASSERT_EQ(copy_->run(RemoteCopy::Purpose::fetch, {&target, 1}, {&source, 1}, granted), 0);
  EXPECT_EQ(recorded.sizes_here, (std::vector<std::size_t>{8, 64, 8}));
  std::array<std::byte, 72> back;
  const iovec whole{back.data(), back.size()};
  ASSERT_EQ(read({&whole, 1}, {&source, 1}), 0);
  EXPECT_EQ(std::memcmp(target.iov_base, back.data(), back.size()), 0);
}

// For each piece of the peer the kernel looks up pages, so adjacent Writes share one.
TEST_F(Child, AdjacentWritesAreOnePieceOfThePeer) {
  fill(here_.data(), 9);
  std::vector<iovec> from;
  std::vector<iovec> to;
  for (std::size_t i = 0; i < 32; ++i) {
    from.push_back({here_.data() + i * 64, 64});
    to.push_back({child_ + 128 + i * 64, 64});
  }
  to.back().iov_base = child_ + 65536;  // not adjacent
  ASSERT_EQ(write(from, to), 0);
  EXPECT_EQ(recorded.sizes_there, (std::vector<std::size_t>{8, 31 * 64, 64}));
  // Each Write is a piece of its own here, so that it comes after the one before.
  std::vector<std::size_t> sizes(33, 64);
  sizes[0] = 8;
  EXPECT_EQ(recorded.sizes_here, sizes);
  std::vector<std::byte> back(32 * std::size_t{64});
  const iovec all{back.data(), back.size()};
  ASSERT_EQ(read({&all, 1}, to), 0);
  EXPECT_EQ(std::memcmp(back.data(), here_.data(), back.size()), 0);
}

// Lists that are longer than the kernel's are copied in parts.
TEST_F(Child, ManyWritesAreSplitWhereTheListIsFull) {
  fill(here_.data(), 3);
  std::vector<iovec> from;
  std::vector<iovec> to;
  for (std::size_t i = 0; i < 100; ++i) {
    from.push_back({here_.data() + i * 100, 100});
    to.push_back({child_ + i * 100, 100});
  }
  ASSERT_EQ(write(from, to), 0);
  std::vector<std::byte> back(10'000);
  const iovec all{back.data(), back.size()};
  const iovec there{child_, back.size()};
  ASSERT_EQ(read({&all, 1}, {&there, 1}), 0);
  EXPECT_EQ(std::memcmp(back.data(), here_.data(), back.size()), 0);
}

TEST_F(Child, NothingIsNoCopy) {
  EXPECT_EQ(read({}, {}), 0);
  const iovec empty{here_.data(), 0};
  EXPECT_EQ(write({&empty, 1}, {}), 0);
}

TEST_F(Child, MemoryThatIsNotMappedIsAFault) {
  const iovec here{here_.data(), 8192};
  const iovec nowhere{reinterpret_cast<void*>(0x1000), 8192};
  EXPECT_EQ(read({&here, 1}, {&nowhere, 1}), EFAULT);
  EXPECT_EQ(write({&here, 1}, {&nowhere, 1}), EFAULT);
  const iovec there{child_, 8192};
  EXPECT_EQ(read({&nowhere, 1}, {&there, 1}), EFAULT);
  // The first piece is there, the second is not.
  const iovec pieces[] = {{child_, 4096}, {reinterpret_cast<void*>(0x1000), 4096}};
  EXPECT_EQ(read({&here, 1}, pieces), EFAULT);
}

TEST_F(Child, APeerThatNamesTooLittleIsAFault) {
  const iovec here{here_.data(), 100};
  const iovec there{child_, 60};
  EXPECT_EQ(read({&here, 1}, {&there, 1}), EFAULT);
  EXPECT_EQ(read({&here, 1}, {}), EFAULT);
}

TEST_F(Child, ThatHasEndedIsNotAccessed) {
  EXPECT_TRUE(peer_->alive());
  const iovec here{here_.data(), 100};
  const iovec there{child_, 100};
  ASSERT_EQ(read({&here, 1}, {&there, 1}), 0);
  end_child();
  EXPECT_FALSE(peer_->alive());
  EXPECT_EQ(read({&here, 1}, {&there, 1}), ESRCH);
}

TEST_F(Child, WithdrawnMemoryIsNotTouched) {
  const iovec here{here_.data(), 100};
  const iovec there{child_, 100};
  const auto withdrawn = [] { return false; };
  EXPECT_EQ(copy_->run(RemoteCopy::Purpose::write, {&here, 1}, {&there, 1}, withdrawn), EACCES);
  inbox_.inbox.open = 0;
  EXPECT_EQ(write({&here, 1}, {&there, 1}), EACCES);
  EXPECT_EQ(inbox_.inbox.copy.sequence % 2, 0U) << "an announcement is left";
}

// A peer that revokes each attempt cannot keep this process in a loop.
TEST_F(Child, EndlessRevocationEnds) {
  const iovec here{here_.data(), 100};
  const iovec there{child_, 100};
  int calls = 0;
  const auto revoked = [&] {
    ++calls;
    inbox_.inbox.copy.revocations += begins_revocation + ends_revocation;
    inbox_.inbox.copy.pieces[1].iov_len = 0;
    return true;
  };
  EXPECT_EQ(copy_->run(RemoteCopy::Purpose::write, {&here, 1}, {&there, 1}, revoked), EFAULT);
  EXPECT_GT(calls, 10);
}

// The peer's thread stands still while it empties the list, which is written anew meanwhile.
TEST_F(Child, ASlowRevocationEndsMoreThanOneAttempt) {
  fill(here_.data(), 3);
  const iovec here{here_.data(), 100};
  const iovec there{child_, 100};
  int calls = 0;
  const auto revoked_slowly = [&] {
    std::atomic<std::uint64_t>& revocations = inbox_.inbox.copy.revocations;
    if (++calls == 1) revocations += begins_revocation;
    if (calls == 3) revocations += ends_revocation;
    if (calls <= 3) inbox_.inbox.copy.pieces[1].iov_len = 0;
    return true;
  };
  ASSERT_EQ(copy_->run(RemoteCopy::Purpose::write, {&here, 1}, {&there, 1}, revoked_slowly), 0);
  EXPECT_EQ(calls, 4);
}

// A list of few pieces lies in another place than a longer one.
TEST_F(Child, ARevokedCopyStartsAnew) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{20}}) {
    fill(here_.data(), 9 + static_cast<unsigned>(count));
    // With a gap of one byte between the pieces, which stays as it was.
    const std::size_t part = bytes / count - 1;
    std::vector<iovec> here;
    std::vector<iovec> there;
    for (std::size_t i = 0; i < count; ++i) {
      here.push_back({here_.data() + i * (part + 1), part});
      there.push_back({child_ + i * (part + 1), part});
    }
    int calls = 0;
    const auto revoked_once = [&] {
      if (++calls > 1) return true;
      inbox_.inbox.copy.revocations += begins_revocation + ends_revocation;
      for (iovec& piece : inbox_.inbox.copy.pieces) piece.iov_len = 0;
      for (iovec& piece : inbox_.inbox.copy_pieces) piece.iov_len = 0;
      return true;
    };
    ASSERT_EQ(copy_->run(RemoteCopy::Purpose::write, here, there, revoked_once), 0);
    EXPECT_EQ(calls, 2);
    std::vector<std::byte> back(bytes);
    std::vector<iovec> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back({back.data() + i * (part + 1), part});
    ASSERT_EQ(read(all, there), 0);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(std::memcmp(all[i].iov_base, here[i].iov_base, part), 0) << count << " " << i;
    }
  }
}

// Programs may have thousands of idle connections, and write over each of them now and then.
TEST_F(Child, ASmallCopyUsesOnePageOfTheInbox) {
  const SharedMemory memory = SharedMemory::create("weft-inbox", inbox::bytes_for(64));
  ASSERT_TRUE(memory.valid());
  auto& own = *std::launder(reinterpret_cast<inbox::Inbox*>(memory.data()));
  own.open = 1;
  RemoteCopy copy(own, *peer_);
  const iovec here{here_.data(), 100};
  const iovec there{child_, 100};
  ASSERT_EQ(copy.run(RemoteCopy::Purpose::write, {&here, 1}, {&there, 1}, granted), 0);
  struct stat status {};
  ASSERT_EQ(fstat(memory.file(), &status), 0);
  EXPECT_EQ(status.st_blocks * 512, sysconf(_SC_PAGESIZE));
}

// Threads of this process stand for those of a peer that neither end their copies nor are stopped.
// It has made the waits before as long as it could.
TEST_F(Child, ManyCopiesThatDoNotEndShareOneWait) {
  const PeerProcess peer(getpid(), mark_.name(), GrantView());
  const std::uint64_t now_ns = sys::now_ns();
  peer.patience().spend(Patience::least_ns + Patience::longest_ns, now_ns);
  for (int i = 0; i < 40; ++i) {
    SharedInbox stuck;
    stuck.inbox.copy.thread = static_cast<std::uint32_t>(sys::thread_id());
    stuck.inbox.copy.sequence = 1;
    await_copy(stuck.inbox, peer);
    EXPECT_EQ(stuck.inbox.copy.revocations, begins_revocation + ends_revocation);
  }
}

TEST(Patience, IsSharedAndComesBack) {
  constexpr std::uint64_t second_ns = 1'000'000'000;
  Patience patience;
  std::uint64_t now_ns = 100 * second_ns;
  EXPECT_EQ(patience.limit_ns(now_ns), Patience::least_ns + Patience::longest_ns);
  // Short waits cost nothing.
  for (int i = 0; i < 1000; ++i) patience.spend(Patience::least_ns, now_ns);
  EXPECT_EQ(patience.limit_ns(now_ns), Patience::least_ns + Patience::longest_ns);
  std::uint64_t waited_ns = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t limit_ns = patience.limit_ns(now_ns);
    now_ns += limit_ns;
    waited_ns += limit_ns;
    patience.spend(limit_ns, now_ns);
  }
  EXPECT_GE(patience.limit_ns(now_ns), Patience::least_ns);
  EXPECT_LT(waited_ns, Patience::longest_ns + 100 * 2 * Patience::least_ns);
  now_ns += Patience::restored_ns;
  EXPECT_EQ(patience.limit_ns(now_ns), Patience::least_ns + Patience::longest_ns);
  // A clock that another thread has read before.
  patience.spend(second_ns, now_ns);
  EXPECT_LE(patience.limit_ns(now_ns - second_ns), Patience::longest_ns);
}

// The number of the process stays, its memory does not.
TEST(RemoteCopy, DoesNotReachAnotherProgramImage) {
  ProcessMark mark;
  ASSERT_TRUE(mark.make());
  std::byte* const memory = map();
  int pipes[2];
  int ends[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(ends, 0), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(ends[0], STDIN_FILENO);
    close(ends[1]);
    execlp("cat", "cat", nullptr);
    _exit(127);
  }
  close(pipes[1]);
  char ignored = 0;
  ASSERT_EQ(read(pipes[0], &ignored, 1), 0) << "execve(2) closes the last copy of the other end";
  const PeerProcess peer(child, mark.name(), GrantView());
  SharedInbox inbox;
  RemoteCopy copy(inbox.inbox, peer);
  std::uint64_t word = 0;
  const iovec here{&word, sizeof word};
  const iovec there{memory, sizeof word};
  EXPECT_FALSE(peer.alive());
  using Purpose = RemoteCopy::Purpose;
  for (const auto purpose : {Purpose::write, Purpose::send, Purpose::read, Purpose::fetch}) {
    const int failed = copy.run(purpose, {&here, 1}, {&there, 1}, granted);
    EXPECT_TRUE(failed == ESRCH || failed == EPERM) << failed;
  }
  EXPECT_EQ(PeerProcess::open(child, {mark.name(), GrantView()}, {}), nullptr);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  for (const int fd : {pipes[0], ends[0]}) close(fd);
  munmap(memory, bytes);
}

// A peer that copies, in a process of its own, to memory of this process. The most unfavourable
// point to be stopped is after its last look and before the system call.
TEST(RemoteCopy, OfAStoppedPeerIsRevoked) {
  ProcessMark mark;
  ASSERT_TRUE(mark.make());
  std::byte* const memory = map();
  fill(memory, 1);
  SharedInbox inbox;
  const pid_t owner = getpid();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RemoteCopy::abandon_after_fork();
    const PeerProcess peer(owner, mark.name(), GrantView());
    RemoteCopy copy(inbox.inbox, peer);
    const std::vector<std::byte> data(bytes);
    const iovec here{const_cast<std::byte*>(data.data()), bytes};
    const iovec there{memory, bytes};
    int calls = 0;
    const auto stopped_once = [&] {
      if (++calls > 1) return false;
      raise(SIGSTOP);
      return true;
    };
    const int failed = copy.run(RemoteCopy::Purpose::write, {&here, 1}, {&there, 1}, stopped_once);
    _exit(failed == EACCES && calls == 2 ? 0 : failed == EPERM ? 77 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  const PeerProcess peer(child, mark.name(), GrantView());
  EXPECT_EQ(inbox.inbox.copy.sequence % 2, 1U);
  await_copy(inbox.inbox, peer);
  std::vector<std::byte> expected(bytes);
  fill(memory, 2);
  fill(expected.data(), 2);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(std::memcmp(memory, expected.data(), bytes), 0) << "the peer has copied later";
  munmap(memory, bytes);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "the kernel refuses copies";
  EXPECT_EQ(status, 0);
}

// An announcement of a peer that was killed stays.
TEST(RemoteCopy, OfAKilledPeerIsOver) {
  ProcessMark mark;
  ASSERT_TRUE(mark.make());
  SharedInbox inbox;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) pause();
  }
  const PeerProcess peer(child, mark.name(), GrantView());
  inbox.inbox.copy.thread = static_cast<std::uint32_t>(child);
  inbox.inbox.copy.sequence = 1;
  std::jthread killer([&] { kill(child, SIGKILL); });
  await_copy(inbox.inbox, peer);
  EXPECT_FALSE(peer.alive());
  waitpid(child, nullptr, 0);
}

// Memory changes hands all the time: the peer finds it granted or not, and what it writes never
// arrives after the end of a wait.
TEST(RemoteCopy, NeverReachesMemoryAfterTheWait) {
  ProcessMark mark;
  ASSERT_TRUE(mark.make());
  constexpr std::size_t length = 64 * 1024;
  std::byte* const memory = map();
  SharedInbox inbox;
  auto& allowed = inbox.inbox.access;  // shared, and not used otherwise here
  auto& rounds = inbox.inbox.withdrawn;
  const pid_t owner = getpid();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RemoteCopy::abandon_after_fork();
    const PeerProcess peer(owner, mark.name(), GrantView());
    RemoteCopy copy(inbox.inbox, peer);
    const std::vector<std::byte> data(length, std::byte{0xEE});
    const iovec here{const_cast<std::byte*>(data.data()), length};
    const iovec there{memory, length};
    while (true) {
      const auto still = [&] { return allowed.load() != 0; };
      const int failed = copy.run(RemoteCopy::Purpose::write, {&here, 1}, {&there, 1}, still);
      if (failed == 0) ++rounds;
      if (failed == EPERM) _exit(77);
    }
  }
  const PeerProcess peer(child, mark.name(), GrantView());
  for (int round = 0; round < 200; ++round) {
    allowed = 1;
    for (const auto before = rounds.load(); rounds == before && peer.alive();) sys::yield();
    allowed = 0;
    await_copy(inbox.inbox, peer);
    std::memset(memory, round & 0x7F, length);
    sys::yield();
    for (std::size_t i = 0; i < length; ++i) {
      ASSERT_EQ(memory[i], static_cast<std::byte>(round & 0x7F)) << round << " at " << i;
    }
  }
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  munmap(memory, bytes);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "the kernel refuses copies";
}

TEST(PeerProcess, ThatDoesNotExistIsNotOpened) {
  ProcessMark mark;
  ASSERT_TRUE(mark.make());
  EXPECT_EQ(PeerProcess::open(0, {mark.name(), GrantView()}, {}), nullptr);
  EXPECT_EQ(PeerProcess::open(0x7FFFFFFF, {mark.name(), GrantView()}, {}), nullptr);
  EXPECT_EQ(PeerProcess::open(getpid(), {{}, GrantView()}, {}), nullptr) << "no mark";
  EXPECT_NE(PeerProcess::open(getpid(), {mark.name(), GrantView()}, {}), nullptr);
}

TEST(PeerProcess, IsStoppedWhereItsThreadIs) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) pause();
  }
  const PeerProcess peer(child, {}, GrantView());
  const auto thread = static_cast<std::uint32_t>(child);
  EXPECT_FALSE(peer.is_stopped(thread));
  EXPECT_FALSE(peer.is_stopped(1)) << "a thread of another process";
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_TRUE(peer.is_stopped(thread));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(peer.is_stopped(thread));
}

TEST(PeerProcesses, KeepsTheLastOneWithoutAConnection) {
  ProcessMark mark;
  ASSERT_TRUE(mark.make());
  PeerProcesses processes;
  auto self = PeerProcess::open(getpid(), {mark.name(), GrantView()}, {});
  if (!self) GTEST_SKIP() << "process_vm_readv is refused";
  processes.add(self);
  EXPECT_EQ(processes.find(getpid(), mark.name()), self);
  EXPECT_EQ(processes.find(getpid() + 1, mark.name()), nullptr);
  EXPECT_EQ(processes.find(getpid(), {mark.name().address, mark.name().number + 1}), nullptr);
  self.reset();
  EXPECT_NE(processes.find(getpid(), mark.name()), nullptr);
  ProcessMark other;
  ASSERT_TRUE(other.make());
  processes.add(PeerProcess::open(getpid(), {other.name(), GrantView()}, {}));
  EXPECT_EQ(processes.find(getpid(), mark.name()), nullptr);
  EXPECT_NE(processes.find(getpid(), other.name()), nullptr);
}

TEST(ProcessMark, IsSomewhereElseInEachProcess) {
  ProcessMark first;
  ProcessMark second;
  ASSERT_TRUE(first.make() && second.make());
  EXPECT_NE(first.name().address, second.name().address);
  EXPECT_NE(first.name().number, second.name().number);
  const auto before = first.name();
  ASSERT_TRUE(first.make());
  EXPECT_EQ(first.name(), before);
}

}  // namespace
}  // namespace weft::device
