// One descriptor that is readable while any of several others is.
#pragma once

#include "base/epoll_set.h"

namespace weft::fabric {

class WaitSet {
 public:
  WaitSet();  // throws Error

  // A descriptor that is closed leaves the set by itself.
  void add(int fd);  // throws Error
  [[nodiscard]] int fd() const { return epoll_.get(); }

 private:
  EpollSet epoll_;
};

// True if a descriptor is readable now.
[[nodiscard]] bool is_readable(int fd);

}  // namespace weft::fabric
