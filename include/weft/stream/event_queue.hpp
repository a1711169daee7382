// EventQueue: one queue for the events of many listeners and streams.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/stream/listener.hpp"

namespace weft::stream {

namespace detail {
class EventQueueCore;
}

enum class EventType {
  connect_request,  // a peer wants to connect: see `request`
  connected,
  failed,  // the stream could not be connected: see `error_number`
  // The peer has sent its last byte or, with an `error_number`, the connection is lost. Reported
  // once for a stream.
  shutdown,
};

// An event of one listener or stream.
struct Event {
  EventType type = EventType::connected;
  std::uint64_t cookie = 0;  // that was passed to attach(): identifies the listener or stream
  int error_number = 0;
  std::optional<Request> request{};
};

// Thread-safe; each event goes to one of the threads that wait. Attached streams and listeners may
// outlive the queue.
class EventQueue {
 public:
  // A queue without streams and listeners. Throws Error if there are no descriptors.
  WEFT_API EventQueue();
  WEFT_API EventQueue(EventQueue&&) noexcept;
  WEFT_API EventQueue& operator=(EventQueue&&) noexcept;
  WEFT_API ~EventQueue();

  // Waits for the next event; nothing at the deadline. Throws Error.
  [[nodiscard]] WEFT_API std::optional<Event> next(Deadline deadline);
  // Readable while the queue is not empty. Belongs to the queue.
  [[nodiscard]] WEFT_API int fd() const;

 private:
  friend class Stream;
  friend class Listener;
  weft::detail::Held<std::shared_ptr<detail::EventQueueCore>, "weft::stream::EventQueue"> events_;
};

}  // namespace weft::stream
