// Plain loads and stores to memory of another process, and deregistration meanwhile.
#include "device/local/mapped_access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/checked_store.h"
#include "base/fault_handler.h"
#include "base/guarded_memory.h"

namespace weft::device {
namespace {

constexpr std::size_t bytes = 12 * 4096;
constexpr std::uint64_t iova = 0x10000;
constexpr std::uint32_t domain = 4;

sys::Descriptor make_file(unsigned seals = F_SEAL_SHRINK) {
  sys::Descriptor file(memfd_create("mapped", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(file.get(), bytes) != 0 || fcntl(file.get(), F_ADD_SEALS, seals) != 0) file.reset();
  return file;
}

std::byte* map(int file) {
  return static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
}

// This process grants memory of a file, and accesses it as a peer does.
class Mapped : public testing::Test {
 protected:
  Mapped()
      : shared_(mmap(nullptr, sizeof(inbox::Inbox), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        inbox_(*new (shared_) inbox::Inbox) {
    inbox_.open = 1;
  }
  ~Mapped() override { munmap(shared_, sizeof(inbox::Inbox)); }

  void SetUp() override {
    if (!can_store_checked()) GTEST_SKIP() << "no restartable sequences (rseq)";
    ASSERT_TRUE(mark_.make());
    ASSERT_TRUE(table_.open());
    file_ = make_file();
    ASSERT_TRUE(file_.valid());
    memory_ = map(file_.get());
    fill(region_, 0x00012301, 0, bytes);
    table_.publish(region_);
    process_.emplace(getpid(), mark_.name(), view());
    announcements_.emplace(inbox_, *process_);
    access_.emplace(inbox_, *process_, *announcements_);
  }
  void TearDown() override {
    if (memory_) munmap(memory_, bytes);
  }

  [[nodiscard]] GrantView view() const {
    return {
        SharedMemory::open(sys::Descriptor(dup(table_.read_only_file())), grants::bytes, false),
        SharedMemory::open(sys::Descriptor(dup(table_.count_file())), grants::count_bytes, true)};
  }

  void fill(Region& region, std::uint32_t stag, std::uint64_t offset, std::size_t length) const {
    region.file = std::make_shared<FileMemory>();
    ASSERT_EQ(region.file->open(file_.get(), offset, length), 0);
    region.stag = stag;
    region.domain = domain;
    region.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    region.iova = iova;
    region.base = region.file->data();
    region.length_bytes = length;
  }

  [[nodiscard]] static GrantView::Found look_up_in(const PeerProcess& process, std::uint64_t offset,
                                                   std::uint64_t length,
                                                   std::uint32_t stag = 0x00012301) {
    return process.grants().look_up({.stag = stag,
                                     .domain = domain,
                                     .offset = iova + offset,
                                     .length_bytes = length,
                                     .needed = IBV_ACCESS_REMOTE_WRITE});
  }
  [[nodiscard]] GrantView::Found look_up(std::uint64_t offset, std::uint64_t length,
                                         std::uint32_t stag = 0x00012301) const {
    return look_up_in(*process_, offset, length, stag);
  }

  MappedAccess::Result write(const GrantView::Found& found, std::span<std::byte> from) {
    std::byte* const at = access_->find(found);
    if (!at) return MappedAccess::Result::unavailable;
    const iovec here{from.data(), from.size()};
    return access_->write(found, at, {&here, 1});
  }

  ProcessMark mark_;
  void* shared_;
  inbox::Inbox& inbox_;
  GrantTable table_;
  sys::Descriptor file_;
  std::byte* memory_ = nullptr;
  Region region_;
  std::optional<PeerProcess> process_;
  std::optional<RemoteCopy> announcements_;
  std::optional<MappedAccess> access_;
};

TEST_F(Mapped, ExactlyTheBytesAreWritten) {
  std::vector<std::byte> from(bytes);
  for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(1 + i % 251);
  for (const std::size_t offset : {0, 1, 7, 8, 4093}) {
    for (const std::size_t length : {1, 7, 8, 9, 63, 64, 4096, 5000, 40000}) {
      std::fill_n(memory_, bytes, std::byte{0});
      const auto found = look_up(offset, length);
      ASSERT_EQ(write(found, std::span(from).first(length)), MappedAccess::Result::done);
      ASSERT_TRUE(std::equal(memory_ + offset, memory_ + offset + length, from.begin()));
      ASSERT_EQ(std::count(memory_, memory_ + bytes, std::byte{0}), bytes - length);
      std::vector<std::byte> back(length);
      const iovec here{back.data(), length};
      ASSERT_EQ(access_->read(found, access_->find(found), {&here, 1}), MappedAccess::Result::done);
      ASSERT_TRUE(std::equal(back.begin(), back.end(), from.begin()));
    }
  }
}

// Registers of 16 and of 32 bytes, each beginning and each end of them.
TEST_F(Mapped, StoresOfEachWidthWriteExactlyTheBytes) {
  std::vector<std::byte> from(512);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(1 + i % 251);
  const StoreCheck check = process_->grants().check_of(look_up(0, 512), &inbox_.open);
  for (const bool wide : {false, true}) {
    if (wide && !has_wide_registers()) continue;
    for (std::size_t offset = 0; offset < 40; ++offset) {
      for (std::size_t length = 0; length < 300; ++length) {
        std::fill_n(memory_, 512, std::byte{0});
        Stored stored = Stored::interrupted;
        while (stored == Stored::interrupted) {
          stored = checked_store(check, memory_ + offset, from.data() + offset % 3, length, wide);
        }
        ASSERT_EQ(stored, Stored::done);
        ASSERT_TRUE(std::equal(memory_ + offset, memory_ + offset + length,
                               from.begin() + static_cast<std::ptrdiff_t>(offset % 3)))
            << offset << " " << length;
        ASSERT_EQ(std::count(memory_, memory_ + 512, std::byte{0}), 512 - length);
      }
    }
  }
}

// Memory of the program, which may take the access to a part of it away at any time.
class Source {
 public:
  Source()
      : memory_(static_cast<std::byte*>(
            mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::fill_n(memory_, length, std::byte{1});
  }
  ~Source() { munmap(memory_, length); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[nodiscard]] std::span<std::byte> all() const { return {memory_, length}; }
  void lose_pages_from(std::size_t offset) const {
    ASSERT_EQ(mprotect(memory_ + offset, length - offset, PROT_NONE), 0);
  }

  static constexpr std::size_t length = 36864;

 private:
  std::byte* memory_;
};

// The first part of a Write, a later one, and their middle.
TEST_F(Mapped, AWriteFromMemoryThatIsGoneFails) {
  catch_faults();
  for (const std::size_t kept : {0, 4096, 16384, 20480, 32768}) {
    const Source source;
    ASSERT_EQ(write(look_up(0, Source::length), source.all()), MappedAccess::Result::done);
    source.lose_pages_from(kept);
    std::fill_n(memory_, bytes, std::byte{0});
    EXPECT_EQ(write(look_up(0, Source::length), source.all()), MappedAccess::Result::local_fault);
    EXPECT_EQ(std::count(memory_, memory_ + bytes, std::byte{1}), kept);
  }
}

// There the sequence cannot read the program's memory, so that is copied before.
TEST_F(Mapped, AThreadWhoseFaultsAreNotCaughtWritesTheSame) {
  catch_faults();
  std::thread([this] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const Source source;
    ASSERT_FALSE(may_load_directly(source.all().data(), 1));
    ASSERT_EQ(write(look_up(0, Source::length), source.all()), MappedAccess::Result::done);
    EXPECT_EQ(std::count(memory_, memory_ + bytes, std::byte{1}), Source::length);
    source.lose_pages_from(20480);
    std::fill_n(memory_, bytes, std::byte{0});
    EXPECT_EQ(write(look_up(0, Source::length), source.all()), MappedAccess::Result::local_fault);
    EXPECT_EQ(std::count(memory_, memory_ + bytes, std::byte{1}), 20480);
  }).join();
}

// Both widths of registers, each of which continues at a place of its own.
TEST_F(Mapped, AStoreFromMemoryThatIsGoneReturnsAFault) {
  catch_faults();
  const StoreCheck check = process_->grants().check_of(look_up(0, Source::length), &inbox_.open);
  const Source source;
  source.lose_pages_from(8192);
  for (const bool wide : {false, true}) {
    if (wide && !has_wide_registers()) continue;
    Stored stored = Stored::interrupted;
    ASSERT_TRUE(may_load_directly(source.all().data(), 1));
    while (stored == Stored::interrupted) {
      stored = checked_store(check, memory_, source.all().data(), Source::length, wide);
    }
    EXPECT_EQ(stored, Stored::fault);
  }
}

TEST_F(Mapped, NothingIsWrittenAfterDeregistration) {
  const auto found = look_up(0, 64);
  std::vector<std::byte> from(64, std::byte{1});
  ASSERT_EQ(write(found, from), MappedAccess::Result::done);
  std::fill_n(memory_, bytes, std::byte{0});
  table_.withdraw(region_);
  EXPECT_EQ(write(found, from), MappedAccess::Result::withdrawn);
  std::uint64_t value = 1;
  EXPECT_EQ(access_->fetch_add(found, access_->find(found), value),
            MappedAccess::Result::withdrawn);
  EXPECT_EQ(access_->compare_swap(found, access_->find(found), value, 5),
            MappedAccess::Result::withdrawn);
  const iovec here{from.data(), from.size()};
  EXPECT_EQ(access_->read(found, access_->find(found), {&here, 1}),
            MappedAccess::Result::withdrawn);
  // The same place with another region.
  table_.publish(region_);
  EXPECT_EQ(write(found, from), MappedAccess::Result::withdrawn);
  EXPECT_EQ(std::count(memory_, memory_ + bytes, std::byte{0}), bytes);
}

TEST_F(Mapped, NothingIsWrittenThroughAClosedInbox) {
  const auto found = look_up(0, 64);
  std::vector<std::byte> from(64, std::byte{1});
  inbox_.open = 0;
  EXPECT_EQ(write(found, from), MappedAccess::Result::withdrawn);
  EXPECT_EQ(memory_[0], std::byte{0});
}

TEST_F(Mapped, AtomicsReturnTheValueBefore) {
  auto& word = *std::launder(reinterpret_cast<std::uint64_t*>(memory_ + 16));
  word = 40;
  const auto found = look_up(16, 8);
  std::byte* const at = access_->find(found);
  std::uint64_t value = 2;
  ASSERT_EQ(access_->fetch_add(found, at, value), MappedAccess::Result::done);
  EXPECT_EQ(value, 40U);
  EXPECT_EQ(word, 42U);
  value = 41;
  ASSERT_EQ(access_->compare_swap(found, at, value, 7), MappedAccess::Result::done);
  EXPECT_EQ(value, 42U);
  EXPECT_EQ(word, 42U);
  ASSERT_EQ(access_->compare_swap(found, at, value, 7), MappedAccess::Result::done);
  EXPECT_EQ(value, 42U);
  EXPECT_EQ(word, 7U);
}

// An interrupted atomic is either not executed, or not repeated.
TEST_F(Mapped, AtomicsOfTwoThreadsLoseAndRepeatNothing) {
  constexpr std::uint64_t additions = 200'000;
  auto& word = *std::launder(reinterpret_cast<std::uint64_t*>(memory_));
  std::atomic_ref counter(word);
  const auto found = look_up(0, 8);
  std::byte* const at = access_->find(found);
  std::thread other([&] {
    for (std::uint64_t i = 0; i < additions; ++i) counter.fetch_add(1);
  });
  std::uint64_t done = 0;
  for (std::uint64_t i = 0; i < additions; ++i) {
    std::uint64_t value = 1;
    if (access_->fetch_add(found, at, value) == MappedAccess::Result::done) ++done;
  }
  other.join();
  EXPECT_EQ(counter.load(), additions + done);
}

TEST_F(Mapped, MemoryOfThisProcessIsAccessedWhereItLies) {
  const auto place_of = [this](OwnMemory own) {
    const auto process =
        PeerProcess::open(getpid(), {.mark = mark_.name(), .grants = view()}, {.own_memory = own});
    RemoteCopy announcements(inbox_, *process);
    MappedAccess access(inbox_, *process, announcements);
    return access.find(look_up_in(*process, 5, 8));
  };
  if (!PeerProcess::open(getpid(), {.mark = mark_.name(), .grants = view()}, {})->reachable()) {
    GTEST_SKIP() << "process_vm_readv is refused";
  }
  EXPECT_EQ(place_of(OwnMemory::directly), region_.base + 5);
  EXPECT_EQ(place_of(OwnMemory::unseen), nullptr);
  std::byte* const shared = place_of(OwnMemory::shared);
  EXPECT_NE(shared, nullptr);
  EXPECT_NE(shared, region_.base + 5) << "as another process maps it";
}

TEST_F(Mapped, RegionsOfOneFileShareAMapping) {
  Region second;
  fill(second, 0x00045601, 4096, 4096);
  table_.publish(second);
  std::vector<std::byte> from(8, std::byte{3});
  ASSERT_EQ(write(look_up(0, 8), from), MappedAccess::Result::done);
  ASSERT_EQ(write(look_up(0, 8, 0x00045601), from), MappedAccess::Result::done);
  EXPECT_EQ(memory_[0], std::byte{3});
  EXPECT_EQ(memory_[4096], std::byte{3});
  EXPECT_EQ(access_->find(look_up(0, 8, 0x00045601)) - access_->find(look_up(0, 8)), 4096);
  table_.withdraw(second);
  EXPECT_EQ(write(look_up(8, 8), from), MappedAccess::Result::done);
  EXPECT_EQ(look_up(4097, 8).fault, iwarp::Fault::none);
  EXPECT_FALSE(look_up(0, 8, 0x00045601).known);
}

// An access behind the end of a file that was shrunk would be fatal (SIGBUS).
TEST_F(Mapped, FilesThatCanBeShrunkAreRefused) {
  FileMemory memory;
  EXPECT_EQ(memory.open(make_file(F_SEAL_GROW).get(), 0, bytes), EOPNOTSUPP);
  EXPECT_EQ(memory.open(-1, 0, bytes), EBADF);
  EXPECT_EQ(memory.open(file_.get(), 1, bytes), EINVAL);
  EXPECT_EQ(memory.open(file_.get(), 0, 0), EINVAL);
  const sys::Descriptor other(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(memory.open(other.get(), 0, bytes), EOPNOTSUPP);
  EXPECT_EQ(ftruncate(file_.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

// Their owner may give them back to the kernel while this process accesses them. Then the kernel
// copies, which fails instead. The owner itself may map them.
TEST_F(Mapped, FilesWithHugePagesAreNotMappedByPeers) {
  constexpr std::size_t huge_bytes = std::size_t{2} << 20;
  sys::Descriptor file(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file.valid() || ftruncate(file.get(), huge_bytes) != 0) GTEST_SKIP() << "no huge pages";
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  FileMemory own;
  if (own.open(file.get(), 0, huge_bytes) != 0) {
    GTEST_SKIP() << "no huge pages are free (vm.nr_hugepages)";
  }
  FileMemory peers;
  EXPECT_FALSE(peers.open(getpid(), own.name(), huge_bytes, 0));
}

// The number of a descriptor is the owner's word, and may name a terminal.
TEST_F(Mapped, ATerminalDoesNotBecomeThatOfThisProcess) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setsid();  // a process that would take any terminal that it opens
    const int leading = posix_openpt(O_RDWR | O_NOCTTY);
    if (leading < 0 || grantpt(leading) != 0 || unlockpt(leading) != 0) _exit(2);
    const int terminal = open(ptsname(leading), O_RDWR | O_NOCTTY);
    if (terminal < 0) _exit(2);
    FileMemory memory;
    const bool opened = memory.open(getpid(), {.descriptor = terminal}, bytes, 0);
    const bool taken = open("/dev/tty", O_RDWR) >= 0;
    _exit(opened || taken ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no terminals here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Mapped, AnotherFileUnderTheSameDescriptorIsNotMapped) {
  const sys::Descriptor other = make_file();
  ASSERT_EQ(dup2(other.get(), region_.file->name().descriptor), region_.file->name().descriptor);
  EXPECT_EQ(access_->find(look_up(0, 8)), nullptr);
}

// Stopped anywhere, the peer stores nothing once deregistration has returned.
TEST_F(Mapped, AStoppedPeerStoresNothingAfterDeregistration) {
  constexpr int rounds = 25;
  for (int round = 0; round < rounds; ++round) {
    const auto found = look_up(0, 4096);
    const std::uint64_t before = inbox_.copy.sequence;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Mapped anew: mappings do not survive fork(2).
      PeerProcess granting(getppid(), mark_.name(), view());
      RemoteCopy announcements(inbox_, granting);
      RemoteCopy::abandon_after_fork();
      MappedAccess access(inbox_, granting, announcements);
      std::vector<std::byte> from(4096, std::byte{1});
      const iovec here{from.data(), from.size()};
      std::byte* const at = access.find(found);
      auto result = at ? MappedAccess::Result::done : MappedAccess::Result::unavailable;
      // Lists of four Writes, each with one announcement.
      for (unsigned i = 1; result == MappedAccess::Result::done; ++i) {
        result = access.write(found, at, {&here, 1});
        if (i % 4 == 0) access.end();
      }
      _exit(result == MappedAccess::Result::withdrawn ? 0 : 1);
    }
    while (inbox_.copy.sequence < before + 100 && waitpid(child, nullptr, WNOHANG) == 0) {
      std::this_thread::yield();
    }
    kill(child, SIGSTOP);
    ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
    table_.withdraw(region_);
    await_copy(inbox_, PeerProcess(child, mark_.name(), GrantView()));
    std::fill_n(memory_, bytes, std::byte{9});
    kill(child, SIGCONT);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(std::count(memory_, memory_ + bytes, std::byte{9}), bytes) << "round " << round;
    inbox_.copy.sequence = 0;
    table_.publish(region_);
  }
}

}  // namespace
}  // namespace weft::device
