// eventfd(2) as a wake-up: one thread signals, and epoll or poll in another one returns.
#pragma once

#include "base/descriptor.h"

namespace weft {

// Thread-safe. Non-blocking and close-on-exec. Uses bare system calls, so that a library which
// replaces read(2) and write(2) never sees it.
class EventFd {
 public:
  // Takes no descriptor where the process has none left: see valid(); errno has the reason.
  EventFd();

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] int get() const { return fd_.get(); }
  // Makes the descriptor readable until drain(). Any number of signals counts as one.
  void signal() const noexcept;
  void drain() const noexcept;
  // In the child after fork(2): closes the child's copy.
  void close() { fd_.reset(); }

 private:
  Descriptor fd_;
};

}  // namespace weft
