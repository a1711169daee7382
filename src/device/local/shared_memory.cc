#include "device/local/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <utility>

#include "base/memory_file.h"
#include "base/own_descriptors.h"
#include "base/system_call.h"

namespace weft::device {
namespace {

// Without these seals the peer could shrink the file, and an access here would end in SIGBUS
// (memfd_create(2)).
constexpr int size_seals = F_SEAL_GROW | F_SEAL_SHRINK;

std::byte* map(int file, std::size_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* at = mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  // A child of fork(2) has no use for it, and must not keep it for longer than its parent.
  (void)madvise(at, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(at);
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)),
      at_(std::exchange(other.at_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  unmap();
  file_ = std::move(other.file_);
  at_ = std::exchange(other.at_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

SharedMemory::~SharedMemory() {
  unmap();
}

void SharedMemory::unmap() {
  if (at_) munmap(at_, bytes_);
  at_ = nullptr;
}

SharedMemory SharedMemory::create(const char* name, std::size_t bytes) {
  SharedMemory made;
  made.file_.reset(
      own_descriptors::moved_high(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!made.file_.valid()) return {};
  const int file = made.file_.get();
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return {};
  // F_SEAL_SEAL: no further seal can be added, for example one against writing.
  if (fcntl(file, F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0) return {};
  made.at_ = map(file, bytes, true);
  made.bytes_ = bytes;
  return made.at_ ? std::move(made) : SharedMemory();
}

SharedMemory SharedMemory::open(sys::Descriptor file, std::size_t bytes, bool writable) {
  // The file comes from another process, so nothing about it is taken for granted. The seals are
  // looked at first: only files of memory have any, and others may belong to a file system that
  // does not answer.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & size_seals) != size_seals) return {};
  struct stat status {};
  const bool fits = fstat(file.get(), &status) == 0 && has_ordinary_pages(status) &&
                    status.st_size == static_cast<off_t>(bytes);
  if (!fits) return {};
  SharedMemory opened;
  opened.at_ = map(file.get(), bytes, writable);
  opened.bytes_ = bytes;
  return opened.at_ ? std::move(opened) : SharedMemory();
}

// A file that is opened anew by its name under /proc gets rights of its own.
sys::Descriptor SharedMemory::read_only_file() const {
  std::array<char, 32> path;
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file_.get());
  return sys::Descriptor(own_descriptors::moved_high(
      static_cast<int>(system_call(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | O_CLOEXEC))));
}

}  // namespace weft::device
