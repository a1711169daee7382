// EventFd: a descriptor that is readable while a flag is set.
#pragma once

#include "base/event_fd.h"

namespace weft::stream::detail {

// Not thread-safe: the owner's lock covers it.
class EventFd {
 public:
  EventFd();  // throws Error

  [[nodiscard]] int fd() const { return event_.get(); }
  void set(bool readable) noexcept;

 private:
  weft::EventFd event_;
  bool readable_ = false;
};

}  // namespace weft::stream::detail
