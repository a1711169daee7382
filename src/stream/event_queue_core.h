// EventQueueCore: the implementation of an EventQueue, shared by the handle and by the streams and
// listeners that are attached to it.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "stream/event_fd.h"
#include "stream/fork_handler.h"
#include "weft/stream/event_queue.hpp"

namespace weft::stream::detail {

// Thread-safe.
class EventQueueCore {
 public:
  void push(Event event);
  [[nodiscard]] std::optional<Event> take();
  [[nodiscard]] int fd() const { return not_empty_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  EventFd not_empty_;
  ForkHandler fork_handler_{this, [](void* self) noexcept {
                              std::construct_at(&static_cast<EventQueueCore*>(self)->mutex_);
                            }};
};

// Waits until one of the descriptors is readable, across signals; false at the deadline. With a
// deadline that has passed it does not look at them: the caller has just done so. Throws Error.
[[nodiscard]] bool await_readable(std::span<const int> fds, const Deadline& deadline);

}  // namespace weft::stream::detail
