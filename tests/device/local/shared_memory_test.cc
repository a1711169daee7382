// Memory that two processes map: its size cannot change, and a read-only descriptor stays so.
#include "device/local/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace weft::device {
namespace {

constexpr std::size_t bytes = 3 * 4096;

sys::Descriptor copy_of(int file) {
  return sys::Descriptor(fcntl(file, F_DUPFD_CLOEXEC, 0));
}

sys::Descriptor unsealed(std::size_t size) {
  sys::Descriptor file(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(size)), 0);
  return file;
}

TEST(SharedMemory, BeginsZeroedAndIsSeenByBothMappings) {
  const SharedMemory made = SharedMemory::create("test", bytes);
  ASSERT_TRUE(made.valid());
  EXPECT_EQ(made.size(), bytes);
  for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(made.data()[i], std::byte{0});
  const SharedMemory opened = SharedMemory::open(copy_of(made.file()), bytes, true);
  ASSERT_TRUE(opened.valid());
  EXPECT_NE(opened.data(), made.data());
  made.data()[bytes - 1] = std::byte{7};
  EXPECT_EQ(opened.data()[bytes - 1], std::byte{7});
  opened.data()[0] = std::byte{8};
  EXPECT_EQ(made.data()[0], std::byte{8});
}

// A file that shrinks would make an access of the other process a fatal error.
TEST(SharedMemory, CannotChangeItsSize) {
  const SharedMemory made = SharedMemory::create("test", bytes);
  ASSERT_TRUE(made.valid());
  EXPECT_NE(ftruncate(made.file(), 4096), 0);
  EXPECT_NE(ftruncate(made.file(), 2 * bytes), 0);
  EXPECT_NE(fcntl(made.file(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "seals can be added";
}

TEST(SharedMemory, OfAnotherSizeIsRefused) {
  const SharedMemory made = SharedMemory::create("test", bytes);
  ASSERT_TRUE(made.valid());
  EXPECT_FALSE(SharedMemory::open(copy_of(made.file()), bytes - 1, true).valid());
  EXPECT_FALSE(SharedMemory::open(copy_of(made.file()), bytes + 1, true).valid());
  EXPECT_FALSE(SharedMemory::open(copy_of(made.file()), 2 * bytes, false).valid());
}

TEST(SharedMemory, ThatCanStillShrinkIsRefused) {
  EXPECT_FALSE(SharedMemory::open(unsealed(bytes), bytes, true).valid());
  sys::Descriptor grows = unsealed(bytes);
  ASSERT_EQ(fcntl(grows.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(SharedMemory::open(std::move(grows), bytes, true).valid());
}

// The other process can give their pages back to the kernel in spite of the seals. Where none are
// left, the next access ends a process.
TEST(SharedMemory, OfHugePagesIsRefused) {
  constexpr std::size_t huge_bytes = std::size_t{2} << 20;
  sys::Descriptor file(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file.valid() || ftruncate(file.get(), huge_bytes) != 0) GTEST_SKIP() << "no huge pages";
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
  void* const at = mmap(nullptr, huge_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) GTEST_SKIP() << "no huge pages are free (vm.nr_hugepages)";
  munmap(at, huge_bytes);
  EXPECT_FALSE(SharedMemory::open(std::move(file), huge_bytes, true).valid());
}

TEST(SharedMemory, OtherDescriptorsAreRefused) {
  EXPECT_FALSE(SharedMemory::open(sys::Descriptor(), bytes, true).valid());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const sys::Descriptor writer(ends[1]);
  EXPECT_FALSE(SharedMemory::open(sys::Descriptor(ends[0]), bytes, true).valid());
}

TEST(SharedMemory, AReadOnlyDescriptorCannotBeMappedForWriting) {
  const SharedMemory made = SharedMemory::create("test", bytes);
  ASSERT_TRUE(made.valid());
  sys::Descriptor file = made.read_only_file();
  ASSERT_TRUE(file.valid());
  EXPECT_EQ(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0), MAP_FAILED);
  EXPECT_FALSE(SharedMemory::open(copy_of(file.get()), bytes, true).valid());
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  EXPECT_NE(mprotect(at, bytes, PROT_READ | PROT_WRITE), 0);
  munmap(at, bytes);
  const SharedMemory opened = SharedMemory::open(std::move(file), bytes, false);
  ASSERT_TRUE(opened.valid());
  made.data()[5] = std::byte{9};
  EXPECT_EQ(opened.data()[5], std::byte{9});
}

TEST(SharedMemory, OutlivesItsDescriptorAndItsCreator) {
  SharedMemory made = SharedMemory::create("test", bytes);
  ASSERT_TRUE(made.valid());
  const SharedMemory opened = SharedMemory::open(copy_of(made.file()), bytes, true);
  ASSERT_TRUE(opened.valid());
  made.close_file();
  made.data()[1] = std::byte{3};
  made = SharedMemory();
  EXPECT_FALSE(made.valid());
  EXPECT_EQ(opened.data()[1], std::byte{3});
}

TEST(SharedMemory, MovesWithoutUnmapping) {
  SharedMemory made = SharedMemory::create("test", bytes);
  ASSERT_TRUE(made.valid());
  made.data()[2] = std::byte{4};
  SharedMemory moved(std::move(made));
  EXPECT_EQ(moved.data()[2], std::byte{4});
  SharedMemory assigned = SharedMemory::create("other", bytes);
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data()[2], std::byte{4});
}

}  // namespace
}  // namespace weft::device
