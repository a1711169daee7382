// EventQueueCore: the implementation of an EventQueue, shared by the handle and by the streams and
// listeners that are attached to it.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "stream/event_fd.h"
#include "stream/fork_handler.h"
#include "weft/stream/event_queue.hpp"

namespace weft::stream::detail {

// The requests of one attached listener that are in a queue. Thread-safe.
class QueuedRequests {
 public:
  virtual ~QueuedRequests() = default;
  // One of them was taken from the queue.
  virtual void note_taken() = 0;
};

// Thread-safe.
class EventQueueCore {
 public:
  // `requests` is notified when the event is taken; nothing for other events than requests.
  void push(Event event, std::shared_ptr<QueuedRequests> requests = nullptr);
  [[nodiscard]] std::optional<Event> take();
  [[nodiscard]] int fd() const { return not_empty_.fd(); }

 private:
  std::mutex mutex_;
  std::deque<std::pair<Event, std::shared_ptr<QueuedRequests>>> events_;
  EventFd not_empty_;
  ForkHandler fork_handler_{this, [](void* self) noexcept {
                              std::construct_at(&static_cast<EventQueueCore*>(self)->mutex_);
                            }};
};

// Waits until one of the descriptors is readable, across signals; false at the deadline. With a
// deadline that has passed it does not look at them: the caller has just done so. Throws Error.
[[nodiscard]] bool await_readable(std::span<const int> fds, const Deadline& deadline);

}  // namespace weft::stream::detail
