// Accesses to memory that is not there, or is read-only, end in a result and not in a signal.
#include "base/guarded_memory.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/crc32c_lanes.h"
#include "base/crc32c_state.h"
#include "base/fault_handler.h"
#include "base/guarded_code.h"
#include "base/guarded_crc.h"
#include "support/refuse.h"

namespace weft {
namespace {

// Three pages, of which a test may take the last one away.
class Pages {
 public:
  Pages()
      : at_(static_cast<std::byte*>(::mmap(nullptr, 3 * page(), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { ::munmap(at_, 3 * page()); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  // Of the last page, where the memory ends after protect_last(PROT_NONE).
  [[nodiscard]] std::byte* edge() const { return at_ + 2 * page(); }
  void protect_last(int protection) const { ::mprotect(edge(), page(), protection); }

 private:
  std::byte* at_;
};

// Makes each thread ask again.
void recheck() {
  static std::uint64_t now_ns = 0;
  recheck_faults(now_ns += 1'000'000'000);
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + 3);
  return made;
}

// Each size up to 1000 and a few large ones, at different alignments.
void copy_every_size() {
  const auto from = pattern(70'100);
  std::vector<std::size_t> sizes(1000);
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
  sizes.insert(sizes.end(), {4096, 4097, 16'384, 65'535});
  for (const std::size_t size : sizes) {
    const std::size_t shift = size % 37;
    std::vector<std::byte> to(size + 64 + shift);
    ASSERT_TRUE(guarded_store(to.data() + shift, from.data() + size % 5, size)) << size;
    ASSERT_TRUE(std::equal(to.begin() + shift, to.begin() + shift + size, from.begin() + size % 5));
    ASSERT_EQ(std::count(to.begin() + shift + size, to.end(), std::byte{}), 64) << size;
    ASSERT_EQ(std::count(to.begin(), to.begin() + shift, std::byte{}), shift) << size;
    ASSERT_TRUE(guarded_load(to.data(), from.data(), size)) << size;
    ASSERT_TRUE(std::equal(to.begin(), to.begin() + size, from.begin())) << size;
  }
}

// A copy with its CRC, behind a byte of which the CRC is known already.
void checksum(const std::vector<std::byte>& from, std::size_t at, std::size_t size,
              std::size_t shift) {
  std::vector<std::byte> to(shift + size + 64);
  const std::byte first{0x5A};
  std::uint32_t crc = update_crc32c(crc32c_begin, {&first, 1});
  const std::uint32_t expected = update_crc32c(crc, {from.data() + at, size});
  ASSERT_TRUE(guarded_load(to.data() + shift, from.data() + at, size, crc)) << size;
  ASSERT_EQ(crc, expected) << size << " from " << at << " to " << shift;
  ASSERT_TRUE(std::equal(to.begin() + shift, to.begin() + shift + size, from.begin() + at)) << size;
  ASSERT_EQ(std::count(to.begin() + shift + size, to.end(), std::byte{}), 64) << size;
  ASSERT_EQ(std::count(to.begin(), to.begin() + shift, std::byte{}), shift) << size;
}

// Each size around one to four blocks, a few large ones, and each alignment of both ends.
void checksum_every_size() {
  const auto from = pattern(70'100);
  for (std::size_t size = 0; size < 1100; ++size) checksum(from, size % 67, size, size % 71);
  for (const std::size_t size : {4095, 4096, 4097, 16'384, 64'768, 65'535}) {
    checksum(from, size % 13, size, 20);
  }
  for (std::size_t at = 0; at < 64; ++at) {
    for (std::size_t shift = 0; shift < 64; ++shift) checksum(from, at, 777, shift);
  }
}

// With the last `cut` bytes behind the edge of accessible memory.
void copy_beyond_the_edge(const Pages& pages) {
  std::vector<std::byte> own(2 * Pages::page());
  for (const std::size_t size :
       {1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 129, 200, 256, 700, 4096}) {
    for (const std::size_t cut : {std::size_t{1}, size / 2, size}) {
      if (cut == 0) continue;
      std::byte* const at = pages.edge() + cut - size;
      EXPECT_FALSE(guarded_load(own.data(), at, size)) << size << " " << cut;
      std::uint32_t crc = crc32c_begin;
      EXPECT_FALSE(guarded_load(own.data(), at, size, crc)) << size << " " << cut;
      EXPECT_FALSE(guarded_store(at, own.data(), size)) << size << " " << cut;
    }
    EXPECT_TRUE(guarded_load(own.data(), pages.edge() - size, size));
    EXPECT_TRUE(guarded_store(pages.edge() - size, own.data(), size));
  }
}

void atomics_work(std::uint64_t* word) {
  std::uint64_t original = 0;
  *word = 40;
  EXPECT_TRUE(guarded_atomic(word, {AtomicOperation::fetch_add, 2}, original));
  EXPECT_EQ(original, 40U);
  EXPECT_EQ(*word, 42U);
  EXPECT_TRUE(guarded_atomic(word, {AtomicOperation::exchange, 7}, original));
  EXPECT_EQ(original, 42U);
  EXPECT_EQ(*word, 7U);
  EXPECT_TRUE(guarded_atomic(word, {AtomicOperation::compare_exchange, 9, 8}, original));
  EXPECT_EQ(original, 7U);
  EXPECT_EQ(*word, 7U);
  EXPECT_TRUE(guarded_atomic(word, {AtomicOperation::compare_exchange, 9, 7}, original));
  EXPECT_EQ(original, 7U);
  EXPECT_EQ(*word, 9U);
}

void atomics_fail(std::byte* word) {
  std::uint64_t original = 0;
  for (const auto operation :
       {AtomicOperation::fetch_add, AtomicOperation::exchange, AtomicOperation::compare_exchange}) {
    EXPECT_FALSE(guarded_atomic(word, {operation, 1, 0}, original));
  }
}

// Everything that a test of a way to notice faults must show.
void accesses_are_guarded() {
  copy_every_size();
  checksum_every_size();
  const Pages pages;
  pages.protect_last(PROT_NONE);
  copy_beyond_the_edge(pages);
  atomics_fail(pages.edge());
  pages.protect_last(PROT_READ);
  std::array<std::byte, 64> own{};
  EXPECT_TRUE(guarded_load(own.data(), pages.edge() - 32, own.size()));
  EXPECT_FALSE(guarded_store(pages.edge() - 32, own.data(), own.size()));
  atomics_fail(pages.edge());
  alignas(8) std::uint64_t word = 0;
  atomics_work(&word);
}

TEST(GuardedMemory, CopiesEverySize) {
  copy_every_size();
}

TEST(GuardedMemory, ComputesTheChecksumOfEverySize) {
  checksum_every_size();
}

#if defined(WEFT_GUARDED_FOLD)
TEST(GuardedMemory, FoldsInWideRegisters) {
  if (!__builtin_cpu_supports("vpclmulqdq") || !__builtin_cpu_supports("avx512f")) {
    GTEST_SKIP() << "not with this processor";
  }
  catch_faults();
  const auto from = pattern(70'100);
  for (const std::size_t blocks : {1, 2, 3, 4, 15, 256}) {
    const std::size_t size = blocks * Crc32cFold::block_bytes;
    std::vector<std::byte> to(size + 65);
    Crc32cFold fold(crc32c_begin);
    ASSERT_TRUE(weft_guarded_copy_fold_avx512(to.data() + 1, from.data() + 3, size, &fold));
    EXPECT_EQ(fold.state(), update_crc32c(crc32c_begin, {from.data() + 3, size})) << blocks;
    EXPECT_TRUE(std::equal(to.begin() + 1, to.end() - 64, from.begin() + 3)) << blocks;
    EXPECT_EQ(std::count(to.end() - 64, to.end(), std::byte{}), 64) << blocks;
  }
  const Pages pages;
  pages.protect_last(PROT_NONE);
  std::vector<std::byte> own(2 * Crc32cFold::block_bytes);
  for (const std::size_t missing : {1, 255, 256, 257, 512}) {
    Crc32cFold fold(crc32c_begin);
    std::byte* const at = pages.edge() + missing - own.size();
    EXPECT_FALSE(weft_guarded_copy_fold_avx512(own.data(), at, own.size(), &fold)) << missing;
    EXPECT_FALSE(weft_guarded_copy_fold_avx512(at, own.data(), own.size(), &fold)) << missing;
  }
}

// Processors with wider registers do not use the lanes otherwise.
TEST(GuardedMemory, CopiesBesideAChecksumInLanes) {
  if (!crc32c_lanes::usable()) GTEST_SKIP() << "not with this processor";
  catch_faults();
  constexpr std::size_t block = Crc32cLanes::block_bytes;
  const auto from = pattern(70'100);
  for (const std::size_t blocks : {1, 2, 3, 4, 15, 32}) {
    const std::size_t size = blocks * block;
    std::vector<std::byte> to(size + 65);
    Crc32cLanes lanes;
    ASSERT_TRUE(
        weft_guarded_copy_lanes(to.data() + 1, from.data() + 3, size, from.data() + 7, &lanes));
    EXPECT_TRUE(std::equal(to.begin() + 1, to.end() - 64, from.begin() + 3)) << blocks;
    EXPECT_EQ(std::count(to.end() - 64, to.end(), std::byte{}), 64) << blocks;
    EXPECT_EQ(lanes.state(crc32c_begin, blocks),
              update_crc32c(crc32c_begin, {from.data() + 7, size}));
  }
}

TEST(GuardedMemory, ReportsMissingMemoryFromACopyBesideAChecksum) {
  if (!crc32c_lanes::usable()) GTEST_SKIP() << "not with this processor";
  catch_faults();
  constexpr std::size_t block = Crc32cLanes::block_bytes;
  const Pages pages;
  pages.protect_last(PROT_NONE);
  std::vector<std::byte> own(block);
  for (const std::size_t missing : {1, 255, 256, 257, 2047, 2048}) {
    Crc32cLanes lanes;
    std::byte* const at = pages.edge() + missing - block;
    EXPECT_FALSE(weft_guarded_copy_lanes(own.data(), at, block, own.data(), &lanes)) << missing;
    EXPECT_FALSE(weft_guarded_copy_lanes(at, own.data(), block, own.data(), &lanes)) << missing;
  }
}
#endif

TEST(GuardedMemory, ReportsMemoryThatIsMissingOrReadOnly) {
  catch_faults();
  accesses_are_guarded();
}

// A file that was truncated raises SIGBUS.
TEST(GuardedMemory, ReportsMemoryOfATruncatedFile) {
  catch_faults();
  const int fd = static_cast<int>(::syscall(SYS_memfd_create, "weft-test", 0));
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(Pages::page())), 0);
  auto* const at = static_cast<std::byte*>(
      ::mmap(nullptr, Pages::page(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_EQ(::ftruncate(fd, 0), 0);
  std::array<std::byte, 32> own{};
  EXPECT_FALSE(guarded_load(own.data(), at, own.size()));
  EXPECT_FALSE(guarded_store(at, own.data(), own.size()));
  atomics_fail(at);
  ::munmap(at, Pages::page());
  ::close(fd);
}

// Many programs block all signals in all threads but one.
TEST(GuardedMemory, IsGuardedInAThreadThatBlocksAllSignals) {
  catch_faults();
  std::thread([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    accesses_are_guarded();
  }).join();
}

// --- Handlers of the program ---------------------------------------------------------------------

sigjmp_buf resume;
int handled = 0;

void handle(int /*signal*/) {
  ++handled;
  siglongjmp(resume, 1);
}

// A handler of the program that ends a fault by a jump, for the life of the object.
class OwnHandler {
 public:
  OwnHandler() {
    handled = 0;
    struct sigaction action {};
    action.sa_handler = handle;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~OwnHandler() { ::sigaction(SIGSEGV, &before_, nullptr); }
  OwnHandler(const OwnHandler&) = delete;
  OwnHandler& operator=(const OwnHandler&) = delete;

 private:
  struct sigaction before_;
};

void fault() {
  const Pages pages;
  pages.protect_last(PROT_NONE);
  if (sigsetjmp(resume, 1) == 0) *reinterpret_cast<volatile char*>(pages.edge()) = 1;
}

TEST(GuardedMemory, LeavesFaultsOfTheProgramToItsHandler) {
  const OwnHandler own;
  catch_faults();
  recheck();
  accesses_are_guarded();
  EXPECT_EQ(handled, 0);
  fault();
  EXPECT_EQ(handled, 1);
  accesses_are_guarded();
}

TEST(GuardedMemory, IsGuardedAlsoIfTheProgramInstallsItsHandlerLater) {
  catch_faults();
  std::array<std::byte, 8> here{};
  ASSERT_TRUE(guarded_load(here.data(), here.data(), 0));  // this thread knows that ours is there
  {
    const OwnHandler own;
    recheck();
    accesses_are_guarded();
    EXPECT_EQ(handled, 0);
    fault();
    EXPECT_EQ(handled, 1);
  }
  recheck();
  accesses_are_guarded();
}

#if defined(__x86_64__)
extern "C" int weft_guarded_wide;

TEST(GuardedMemory, CopiesEverySizeWithoutAvx) {
  catch_faults();
  const int wide = std::exchange(weft_guarded_wide, 0);
  accesses_are_guarded();
  weft_guarded_wide = wide;
}
#endif

TEST(GuardedMemory, FaultsOfTheProgramEndItAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Pages pages;
  pages.protect_last(PROT_NONE);
  EXPECT_EXIT(
      {
        catch_faults();
        accesses_are_guarded();
        ::signal(SIGSEGV, SIG_DFL);  // sanitizers report faults otherwise
        *reinterpret_cast<volatile char*>(pages.edge()) = 1;
      },
      testing::KilledBySignal(SIGSEGV), "");
}

// A signal that a process sends is not a fault, wherever it interrupts.
TEST(GuardedMemory, ASignalThatIsSentGoesToTheProgram) {
  const OwnHandler own;
  catch_faults();
  recheck();
  if (sigsetjmp(resume, 1) == 0) ::raise(SIGSEGV);
  EXPECT_EQ(handled, 1);
}

// Without the handler and without process_vm_readv(2) good memory must still be copied.
TEST(GuardedMemory, CopiesWhereASandboxRefusesTheKernelsCopy) {
  catch_faults();
  const bool refused = test::run_without({SYS_process_vm_readv, SYS_process_vm_writev}, EPERM, [&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    recheck();
    copy_every_size();
    alignas(8) std::uint64_t word = 0;
    atomics_work(&word);
  });
  if (!refused) GTEST_SKIP() << "no seccomp filters";
}

}  // namespace
}  // namespace weft
