// Replacements of the functions that return the status of an open file. The file behind a listening
// stream is an epoll set, and programs ask whether what they listen at is a socket: Ruby's
// TCPServer.for_fd does, and libuv for a descriptor that it was given.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>

#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/next.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

namespace next_status {

constinit next::Function<int(int, struct stat*)> fstat{"fstat"};
constinit next::Function<int(int, struct stat64*)> fstat64{"fstat64"};
// Programs that were built with a C library before 2.33 call these.
constinit next::Function<int(int, int, struct stat*)> old_fstat{"__fxstat"};
constinit next::Function<int(int, int, struct stat64*)> old_fstat64{"__fxstat64"};
constinit next::Function<int(int, const char*, int, unsigned, struct statx*)> statx{"statx"};

}  // namespace next_status

// As the kernel shows a socket: all may read and write.
constexpr unsigned mode_of_socket =
    S_IFSOCK | S_IRWXU | S_IRWXG | S_IRWXO;  // NOLINT(hicpp-signed-bitwise)

template <typename Mode>
int corrected(int fd, int failed, Mode& mode) {
  if (failed == 0 && find(fd)) mode = static_cast<Mode>(mode_of_socket);
  return failed;
}

// Since Linux 6.11 a path that is null counts as an empty one.
bool is_empty(const char* path) {
  return !path || *path == '\0';
}

}  // namespace

WEFT_INTERPOSED int fstat(int fd, struct stat* status) {
  const int failed = next_status::fstat(fd, status);
  return corrected(fd, failed, status->st_mode);
}

WEFT_INTERPOSED int fstat64(int fd, struct stat64* status) {
  const int failed = next_status::fstat64(fd, status);
  return corrected(fd, failed, status->st_mode);
}

WEFT_INTERPOSED int __fxstat(int version, int fd, struct stat* status) {
  const int failed = next_status::old_fstat(version, fd, status);
  return corrected(fd, failed, status->st_mode);
}

WEFT_INTERPOSED int __fxstat64(int version, int fd, struct stat64* status) {
  const int failed = next_status::old_fstat64(version, fd, status);
  return corrected(fd, failed, status->st_mode);
}

// Of the file of a descriptor where the path is empty, and the flags say so.
WEFT_INTERPOSED int statx(int fd, const char* path, int flags, unsigned mask,
                          struct statx* status) {
  const int failed = next_status::statx(fd, path, flags, mask, status);
  const bool told = failed == 0 && (flags & AT_EMPTY_PATH) != 0 && (mask & STATX_TYPE) != 0;
  return told && is_empty(path) ? corrected(fd, failed, status->stx_mode) : failed;
}
