// The C interface of streams: queues of events. See weft/c/stream.h.
#include "c/stream_events.h"

#include <array>
#include <memory>
#include <utility>

#include "c/outcome.h"
#include "c/stream_handle.h"
#include "stream/event_queue_core.h"

namespace weft::c {

std::optional<StreamEvents::Event> StreamEvents::next(const Deadline& deadline) {
  while (true) {
    if (auto found = take()) return found;
    // Another thread may take the event that this one was woken for: then this waits again.
    if (!stream::detail::await_readable(std::array{queue_.fd()}, deadline)) return std::nullopt;
  }
}

// An event is taken and its listener is looked up under one lock. So a listener that was detached
// is not looked up any more once the queue was found empty.
std::optional<StreamEvents::Event> StreamEvents::take() {
  const std::lock_guard lock(mutex_);
  auto event = queue_.next(Deadline::now());
  if (!event) {
    if (has_detached_)
      std::erase_if(listeners_, [](const auto& one) { return one.second.detached; });
    has_detached_ = false;
    return std::nullopt;
  }
  Event found{std::move(*event), {}};
  if (found.event.request) {
    const Attached& listener = listeners_.at(found.event.cookie);
    found.event.cookie = listener.cookie;
    found.private_data = listener.private_data;
  }
  return found;
}

// The number is known before the first request can arrive.
std::uint64_t StreamEvents::attach(stream::Listener& listener, std::uint64_t cookie,
                                   std::vector<std::byte> private_data) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_number_;
    listeners_.emplace(number, Attached{cookie, std::move(private_data)});
  }
  try {
    listener.attach(&queue_, number);
  } catch (...) {
    detach(number);
    throw;
  }
  return number;
}

void StreamEvents::detach(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto found = listeners_.find(number); found != listeners_.end()) {
    found->second.detached = true;
    has_detached_ = true;
  }
}

// Another thread of the parent may have been changing the listeners: they are left where they are.
void StreamEvents::begin_anew_in_child() noexcept {
  std::construct_at(&mutex_);
  std::construct_at(&listeners_);
  has_detached_ = false;
}

}  // namespace weft::c

using namespace weft::c;
using weft::stream::EventType;

struct weft_stream_events {
  std::shared_ptr<StreamEvents> events = std::make_shared<StreamEvents>();
};

// An event gets its type by a cast.
static_assert(static_cast<int>(EventType::connect_request) == WEFT_STREAM_CONNECT_REQUEST);
static_assert(static_cast<int>(EventType::connected) == WEFT_STREAM_CONNECTED);
static_assert(static_cast<int>(EventType::failed) == WEFT_STREAM_FAILED);
static_assert(static_cast<int>(EventType::shutdown) == WEFT_STREAM_SHUTDOWN);

int weft_stream_events_new(weft_stream_events** events) {
  return guarded([&] {
    *events = new weft_stream_events;
    return 0;
  });
}

int weft_stream_events_next(weft_stream_events* events, weft_stream_event* event, int timeout_ms) {
  return guarded([&] {
    // Checked first: an event that was taken from the queue must reach the program.
    WEFT_C_CHECK(event, weft_stream_event, WEFT_STREAM_EVENT);
    auto found = events->events->next(deadline_of(timeout_ms));
    if (!found) return fail(EAGAIN, "there was no event until the timeout");
    weft_stream_event all{};
    all.type = static_cast<std::int32_t>(found->event.type);
    all.error_number = found->event.error_number;
    all.cookie = found->event.cookie;
    if (auto& request = found->event.request) {
      all.request = new weft_stream_request{std::move(*request), std::move(found->private_data)};
    }
    copy_structure(all, event);
    return 0;
  });
}

int weft_stream_events_fd(weft_stream_events* events) {
  return events->events->fd();
}

// Streams and listeners that are attached keep the queue itself.
void weft_stream_events_free(weft_stream_events* events) {
  delete events;
}

int weft_stream_attach(weft_stream* stream, weft_stream_events* events, uint64_t cookie) {
  return guarded([&] {
    if (events == nullptr) {
      stream->stream.attach(nullptr);
    } else {
      events->events->attach(stream->stream, cookie);
    }
    return 0;
  });
}

void weft_stream_listener::detach() {
  if (const auto from = std::exchange(events, nullptr)) {
    acceptor.listener().attach(nullptr);
    from->detach(attachment);
  }
}

int weft_stream_listener_attach(weft_stream_listener* listener, weft_stream_events* events,
                                uint64_t cookie) {
  return guarded([&] {
    listener->detach();
    if (events == nullptr) return 0;
    listener->attachment = events->events->attach(listener->acceptor.listener(), cookie,
                                                  listener->acceptor.private_data());
    listener->events = events->events;
    return 0;
  });
}
