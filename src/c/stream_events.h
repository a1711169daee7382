// One queue for the events of many streams and listeners: the event queue of the C interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "stream/fork_handler.h"
#include "weft/stream.hpp"

namespace weft::c {

// A stream::EventQueue that knows the private data of the attached listeners, with which their
// requests are accepted. Thread-safe.
class StreamEvents {
 public:
  struct Event {
    stream::Event event;
    std::vector<std::byte> private_data;  // of the listener, if it is a request
  };

  // Waits for the next event; nothing at the deadline.
  [[nodiscard]] std::optional<Event> next(const Deadline& deadline);
  [[nodiscard]] int fd() const { return queue_.fd(); }

  void attach(stream::Stream& stream, std::uint64_t cookie) { stream.attach(&queue_, cookie); }
  // Returns the number of the attachment, for detach().
  std::uint64_t attach(stream::Listener& listener, std::uint64_t cookie,
                       std::vector<std::byte> private_data);
  // The listener sends no more requests here. Those that are in the queue stay.
  void detach(std::uint64_t number);

 private:
  // The next event, without waiting.
  [[nodiscard]] std::optional<Event> take();
  void begin_anew_in_child() noexcept;

  // A listener, which the events know by its number instead of its cookie.
  struct Attached {
    std::uint64_t cookie = 0;
    std::vector<std::byte> private_data;
    bool detached = false;
  };

  stream::EventQueue queue_;
  std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, Attached> listeners_;
  bool has_detached_ = false;
  std::uint64_t last_number_ = 0;
  stream::detail::ForkHandler fork_handler_{
      this, [](void* self) noexcept { static_cast<StreamEvents*>(self)->begin_anew_in_child(); }};
};

}  // namespace weft::c
