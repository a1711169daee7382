#include "interpose/shared_heap/heap_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

#include "interpose/shared_heap/raw_calls.h"

namespace weft::interpose {
namespace {

// Above the numbers that programs choose themselves (dup2(2)).
constexpr int first_number = 200;

// A larger file would raise SIGXFSZ.
bool may_be_as_large(std::size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

// The number stays as it is where higher ones are not allowed.
int move_up(int file) {
  const auto higher = static_cast<int>(::syscall(SYS_fcntl, file, F_DUPFD_CLOEXEC, first_number));
  if (higher < 0) return file;
  raw::close(file);
  return higher;
}

}  // namespace

bool HeapFile::create(std::size_t bytes) {
  descriptor_ = -1;
  if (!may_be_as_large(bytes)) return false;
  const int file = memfd_create("weft-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return false;
  // A peer maps only files with F_SEAL_SHRINK. F_SEAL_SEAL keeps other processes from adding a seal
  // against writing.
  struct stat status {};
  const bool made =
      ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
      ::syscall(SYS_fcntl, file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
      fstat(file, &status) == 0;
  if (!made) {
    raw::close(file);
    return false;
  }
  descriptor_ = move_up(file);
  inode_ = status.st_ino;
  device_ = status.st_dev;
  return true;
}

bool HeapFile::is_there() const {
  struct stat status {};
  return descriptor_ >= 0 && fstat(descriptor_, &status) == 0 && status.st_ino == inode_ &&
         status.st_dev == device_;
}

void HeapFile::close() {
  if (is_there()) raw::close(descriptor_);
  descriptor_ = -1;
}

bool HeapFile::map(std::byte* at, std::uint64_t offset_bytes, std::size_t bytes) const {
  if (!is_there()) return false;
  void* const mapped = raw::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                                 descriptor_, offset_bytes);
  // clone(2) calls no handlers, so its child would write to this process's memory. Without the
  // mapping SIGSEGV ends it.
  return mapped != MAP_FAILED && raw::madvise(at, bytes, MADV_DONTFORK) == 0;
}

bool HeapFile::write(const std::byte* from, std::uint64_t offset_bytes, std::size_t bytes) const {
  while (bytes > 0) {
    const ssize_t done = pwrite(descriptor_, from, bytes, static_cast<off_t>(offset_bytes));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    from += done;
    offset_bytes += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

bool HeapFile::punch(std::uint64_t offset_bytes, std::size_t bytes) const {
  return is_there() && fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 static_cast<off_t>(offset_bytes), static_cast<off_t>(bytes)) == 0;
}

bool HeapFile::next_part(std::uint64_t& offset_bytes, std::uint64_t& end_bytes) const {
  const off_t data = lseek(descriptor_, static_cast<off_t>(offset_bytes), SEEK_DATA);
  if (data < 0) return false;
  const off_t hole = lseek(descriptor_, data, SEEK_HOLE);
  if (hole < 0) return false;
  offset_bytes = static_cast<std::uint64_t>(data);
  end_bytes = static_cast<std::uint64_t>(hole);
  return true;
}

}  // namespace weft::interpose
