#include "fabric/wait_set.h"

#include <poll.h>

#include <cerrno>

#include "weft/error.hpp"

namespace weft::fabric {

WaitSet::WaitSet() {
  if (!epoll_.valid()) throw Error(errno, "cannot create a descriptor to wait on");
}

// The data of the entry are never read: only the readiness of the set itself is used.
void WaitSet::add(int fd) {
  const int failed = epoll_.add(fd, EPOLLIN, 0);
  if (failed != 0) throw Error(-failed, "cannot add a descriptor to wait on");
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace weft::fabric
