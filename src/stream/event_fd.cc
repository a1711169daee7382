#include "stream/event_fd.h"

#include <cerrno>

#include "weft/error.hpp"

namespace weft::stream::detail {

EventFd::EventFd() {
  if (!event_.valid()) throw Error(errno, "cannot create an eventfd");
}

void EventFd::set(bool readable) noexcept {
  if (readable == readable_) return;
  readable_ = readable;
  if (readable) {
    event_.signal();
  } else {
    event_.drain();
  }
}

}  // namespace weft::stream::detail
