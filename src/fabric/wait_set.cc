#include "fabric/wait_set.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "weft/error.hpp"

namespace weft::fabric {

WaitSet::WaitSet() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
  if (fd_ < 0) throw Error(errno, "cannot make a descriptor to wait for");
}

WaitSet::~WaitSet() {
  close(fd_);
}

void WaitSet::add(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error(errno, "cannot wait for a descriptor");
  }
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace weft::fabric
