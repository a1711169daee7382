#include "device/memory/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/memory_file.h"
#include "base/own_descriptors.h"
#include "base/system_call.h"

namespace weft::device {

FileMemory::~FileMemory() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

// The seal is checked first: from then on the file can only grow (memfd_create(2)). Bare system
// calls, because a library that replaces fcntl(2) does not know the descriptor.
int FileMemory::map(int file, std::uint64_t offset_bytes, std::size_t length_bytes,
                    std::uint64_t whole_bytes) {
  const long seals = system_call(SYS_fcntl, file, F_GET_SEALS, 0);
  if (seals < 0) return errno == EBADF ? EBADF : EOPNOTSUPP;
  if ((seals & F_SEAL_SHRINK) == 0) return EOPNOTSUPP;
  struct stat status {};
  if (fstat(file, &status) != 0) return errno;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (length_bytes == 0 || offset_bytes > size || length_bytes > size - offset_bytes) return EINVAL;
  if (size <= whole_bytes) {
    offset_bytes = 0;
    length_bytes = static_cast<std::size_t>(size);
  }
  // mmap(2) wants a multiple of the page size; of huge pages it wants a multiple of theirs.
  const auto page = static_cast<std::uint64_t>(status.st_blksize);
  const std::uint64_t into = offset_bytes % page;
  const std::uint64_t pages = (into + length_bytes + page - 1) / page;
  const auto bytes = static_cast<std::size_t>(pages * page);
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                  static_cast<off_t>(offset_bytes - into));
  if (at == MAP_FAILED) return errno;
  // A child of fork(2) has no use for it.
  (void)madvise(at, bytes, MADV_DONTFORK);
  mapping_ = at;
  mapping_bytes_ = bytes;
  at_ = static_cast<std::byte*>(at) + into;
  name_.inode = status.st_ino;
  name_.offset_bytes = offset_bytes;
  length_bytes_ = length_bytes;
  return 0;
}

int FileMemory::open(int file, std::uint64_t offset_bytes, std::size_t length_bytes) {
  if (const int failed = map(file, offset_bytes, length_bytes, 0)) return failed;
  file_.reset(own_descriptors::copy_high(file));
  if (!file_.valid()) return errno;
  name_.descriptor = file_.get();
  return 0;
}

// The kernel allows this to processes that may copy from and to each other's memory. The descriptor
// may name another file by now; the inode shows that.
bool FileMemory::open(int process, const FileName& name, std::size_t length_bytes,
                      std::uint64_t whole_bytes) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", process, name.descriptor);
  // The name is the other process's word, and may lead to anything: a terminal must not become that
  // of this process.
  constexpr int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const sys::Descriptor file(
      static_cast<int>(system_call(SYS_openat, AT_FDCWD, path.data(), flags)));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0 || !has_ordinary_pages(status)) return false;
  if (map(file.get(), name.offset_bytes, length_bytes, whole_bytes) != 0) return false;
  return name_.inode == name.inode;
}

}  // namespace weft::device
