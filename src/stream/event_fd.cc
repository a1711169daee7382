#include "stream/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "weft/error.hpp"

namespace weft::stream::detail {

EventFd::EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw Error(errno, "cannot create an eventfd");
}

EventFd::~EventFd() {
  close(fd_);
}

// Reading resets the counter to 0. Both calls always succeed: the counter is 0 or 1.
void EventFd::set(bool readable) noexcept {
  if (readable == readable_) return;
  readable_ = readable;
  std::uint64_t count = 1;
  [[maybe_unused]] const auto done =
      readable ? write(fd_, &count, sizeof count) : read(fd_, &count, sizeof count);
}

}  // namespace weft::stream::detail
