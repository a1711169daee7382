#include "stream/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "weft/error.hpp"

namespace weft::stream::detail {

EventFd::EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw Error(errno, "cannot make a descriptor to wait on");
}

EventFd::~EventFd() {
  close(fd_);
}

void EventFd::set(bool up) noexcept {
  if (up == up_) return;
  up_ = up;
  std::uint64_t count = 1;
  [[maybe_unused]] const auto done =
      up ? write(fd_, &count, sizeof count) : read(fd_, &count, sizeof count);
}

}  // namespace weft::stream::detail
