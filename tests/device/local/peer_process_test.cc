// Copies between the memory of two processes.
#include "device/local/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

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

class Child : public testing::Test {
 protected:
  void SetUp() override {
    child_ = map();
    fill(child_, 1);
    pid_ = fork();
    if (pid_ == 0) {
      while (true) pause();
    }
    ASSERT_GT(pid_, 0);
    peer_ = PeerProcess(pid_);
    ASSERT_TRUE(peer_.valid());
    here_.resize(bytes);
    std::byte probe{};
    const iovec to{&probe, 1};
    const iovec from{child_, 1};
    if (peer_.read({&to, 1}, {&from, 1}) == EPERM) GTEST_SKIP() << "process_vm_readv is refused";
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

  std::byte* child_ = nullptr;  // its address in the child
  pid_t pid_ = 0;
  PeerProcess peer_;
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
      ASSERT_EQ(peer_.read(to, from), 0) << ours << " " << theirs;
      ASSERT_EQ(std::memcmp(here_.data(), child_, length), 0) << ours << " " << theirs;
    }
  }
}

TEST_F(Child, IsWrittenInAnyPieces) {
  fill(here_.data(), 77);
  const auto from = cut(here_.data(), bytes, 5, 3000);
  const auto to = cut(child_, bytes, 6, 700);
  ASSERT_EQ(peer_.write(from, to), 0);
  std::vector<std::byte> back(bytes);
  const iovec all{back.data(), bytes};
  const iovec there{child_, bytes};
  ASSERT_EQ(peer_.read({&all, 1}, {&there, 1}), 0);
  EXPECT_EQ(std::memcmp(back.data(), here_.data(), bytes), 0);
  fill(here_.data(), 1);
  EXPECT_EQ(std::memcmp(child_, here_.data(), bytes), 0) << "the parent's own copy has changed";
}

TEST_F(Child, NothingIsNoCopy) {
  EXPECT_EQ(peer_.read({}, {}), 0);
  const iovec empty{here_.data(), 0};
  EXPECT_EQ(peer_.write({&empty, 1}, {}), 0);
}

TEST_F(Child, MemoryThatIsNotMappedIsAFault) {
  const iovec here{here_.data(), 8192};
  const iovec nowhere{reinterpret_cast<void*>(0x1000), 8192};
  EXPECT_EQ(peer_.read({&here, 1}, {&nowhere, 1}), EFAULT);
  EXPECT_EQ(peer_.write({&here, 1}, {&nowhere, 1}), EFAULT);
  const iovec there{child_, 8192};
  EXPECT_EQ(peer_.read({&nowhere, 1}, {&there, 1}), EFAULT);
  // The first piece is there, the second is not.
  const iovec pieces[] = {{child_, 4096}, {reinterpret_cast<void*>(0x1000), 4096}};
  EXPECT_EQ(peer_.read({&here, 1}, pieces), EFAULT);
}

TEST_F(Child, APeerThatNamesTooLittleIsAFault) {
  const iovec here{here_.data(), 100};
  const iovec there{child_, 60};
  EXPECT_EQ(peer_.read({&here, 1}, {&there, 1}), EFAULT);
  EXPECT_EQ(peer_.read({&here, 1}, {}), EFAULT);
}

TEST_F(Child, ThatHasEndedIsNotAccessed) {
  EXPECT_TRUE(peer_.alive());
  const iovec here{here_.data(), 100};
  const iovec there{child_, 100};
  ASSERT_EQ(peer_.read({&here, 1}, {&there, 1}), 0);
  end_child();
  EXPECT_FALSE(peer_.alive());
  EXPECT_EQ(peer_.read({&here, 1}, {&there, 1}), ESRCH);
}

TEST(PeerProcess, ThatDoesNotExistIsNotValid) {
  EXPECT_FALSE(PeerProcess().valid());
  EXPECT_FALSE(PeerProcess(0).valid());
  EXPECT_FALSE(PeerProcess(0x7FFFFFFF).valid());
  EXPECT_FALSE(PeerProcess(0x7FFFFFFF).alive());
}

TEST(PeerProcess, MayBeThisOne) {
  PeerProcess self(getpid());
  std::uint64_t from = 42;
  std::uint64_t to = 0;
  const iovec source{&from, sizeof from};
  const iovec sink{&to, sizeof to};
  EXPECT_EQ(self.write({&source, 1}, {&sink, 1}), 0);
  EXPECT_EQ(to, 42U);
}

}  // namespace
}  // namespace weft::device
