// What an EventQueue is made of.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "stream/event_fd.h"
#include "weft/stream/event_queue.hpp"

namespace weft::stream::detail {

class Events {
 public:
  void push(Event event);
  [[nodiscard]] std::optional<Event> take();
  [[nodiscard]] int fd() const { return waits_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  EventFd waits_;
};

// For who has just looked: until the descriptor is readable; false at the deadline. Goes on after
// signals. Throws Error.
[[nodiscard]] bool await_readable(int fd, const Deadline& deadline);

}  // namespace weft::stream::detail
