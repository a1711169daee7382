// System calls of the shared heap, made without the C library's functions: libraries such as UCX
// replace those, to learn of memory that is unmapped, and must not be called inside of malloc(3).
// All return as the functions do.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace weft::interpose::raw {

inline void* mmap(void* at, std::size_t bytes, int protection, int flags, int file,
                  std::uint64_t offset_bytes) {
#if defined(SYS_mmap2)
  // mmap2(2): in units of 4096 bytes.
  return reinterpret_cast<void*>(::syscall(SYS_mmap2, at, bytes, protection, flags, file,
                                           static_cast<unsigned long>(offset_bytes / 4096)));
#else
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, at, bytes, protection, flags, file, offset_bytes));
#endif
}
inline int munmap(void* at, std::size_t bytes) {
  return static_cast<int>(::syscall(SYS_munmap, at, bytes));
}
inline int mprotect(void* at, std::size_t bytes, int protection) {
  return static_cast<int>(::syscall(SYS_mprotect, at, bytes, protection));
}
inline int madvise(void* at, std::size_t bytes, int advice) {
  return static_cast<int>(::syscall(SYS_madvise, at, bytes, advice));
}
// Moves a mapping to `to`, in the place of what is there (mremap(2)).
inline void* move(void* from, std::size_t bytes, void* to) {
  constexpr int move_to = MREMAP_MAYMOVE | MREMAP_FIXED;
  return reinterpret_cast<void*>(::syscall(SYS_mremap, from, bytes, bytes, move_to, to));
}
inline int close(int file) {
  return static_cast<int>(::syscall(SYS_close, file));
}

}  // namespace weft::interpose::raw
