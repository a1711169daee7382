// What happens to many listeners and streams, in one place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/stream/listener.hpp"

namespace weft::stream {

namespace detail {
class Events;
}

enum class EventType {
  connect_request,  // somebody wants to connect: `request`
  connected,
  failed,    // could not be connected: `error_number`
  shutdown,  // the peer has sent its last byte, or (with an error_number) is gone: once
};

// What has happened, and to whom.
struct Event {
  EventType type = EventType::connected;
  std::uint64_t cookie = 0;  // whose: what was given to attach()
  int error_number = 0;
  std::optional<Request> request{};
};

// Thread-safe; each event goes to one waiter. Streams and listeners that are attached may outlive
// the queue.
class EventQueue {
 public:
  WEFT_API EventQueue();
  WEFT_API EventQueue(EventQueue&&) noexcept;
  WEFT_API EventQueue& operator=(EventQueue&&) noexcept;
  WEFT_API ~EventQueue();

  // The next event; nothing where none came until the deadline.
  [[nodiscard]] WEFT_API std::optional<Event> next(Deadline deadline);
  // Readable while an event waits.
  [[nodiscard]] WEFT_API int fd() const;

 private:
  friend class Stream;
  friend class Listener;
  std::shared_ptr<detail::Events> events_;
};

}  // namespace weft::stream
