#include "interpose/descriptor.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// Above FD_SETSIZE.
constexpr std::intptr_t high_enough = 2048;

int duplicate_from(int fd, std::intptr_t from) {
  return next::fcntl(fd, F_DUPFD_CLOEXEC, reinterpret_cast<void*>(from));
}

// Where the soft limit of descriptors leaves no room there, as the usual 1024 does: from half of
// it.
int duplicate_high(int fd) {
  if (const int high = duplicate_from(fd, high_enough); high >= 0) return high;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  return duplicate_from(fd, std::min(static_cast<std::intptr_t>(limit.rlim_cur / 2), high_enough));
}

}  // namespace

int least_high_descriptor() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, high_enough));
}

Descriptor move_high(Descriptor low) {
  const int high = duplicate_high(low.get());
  return high < 0 ? std::move(low) : Descriptor(high);
}

Descriptor copy_high(int fd) {
  const int high = duplicate_high(fd);
  if (high < 0) throw Error(errno, "no descriptor left for a socket: raise the limit (ulimit -n)");
  return Descriptor(high);
}

// FIONBIO changes O_NONBLOCK alone, so the other flags need not be read first.
void set_blocking(int fd, bool blocks) {
  int nonblocking = blocks ? 0 : 1;
  next::ioctl(fd, FIONBIO, &nonblocking);
}

// By fstatat(2), because fstat(2) is replaced by this library.
bool is_same_file(int first, int second) {
  struct stat one {};
  struct stat other {};
  return fstatat(first, "", &one, AT_EMPTY_PATH) == 0 &&
         fstatat(second, "", &other, AT_EMPTY_PATH) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

void shut(const Descriptor& connection) {
  next::shutdown(connection.get(), SHUT_RDWR);
}

}  // namespace weft::interpose
