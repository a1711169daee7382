#include "stream/event_queue_core.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "stream/stream_thread.h"
#include "verbs/conditions.h"

namespace weft::stream {
namespace detail {

void EventQueueCore::push(Event event, std::shared_ptr<QueuedRequests> requests) {
  const std::lock_guard lock(mutex_);
  events_.emplace_back(std::move(event), std::move(requests));
  not_empty_.set(true);
}

std::optional<Event> EventQueueCore::take() {
  std::optional<Event> event;
  std::shared_ptr<QueuedRequests> requests;
  {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return std::nullopt;
    event.emplace(std::move(events_.front().first));
    requests = std::move(events_.front().second);
    events_.pop_front();
    // Under the lock, so that the descriptor is readable exactly while there are events.
    not_empty_.set(!events_.empty());
  }
  // Without it, because the listener takes its own lock, and then this one.
  if (requests) requests->note_taken();
  return event;
}

bool await_readable(std::span<const int> fds, const Deadline& deadline) {
  while (!deadline.passed()) {
    std::array<pollfd, verbs::detail::Descriptors::most> entries{};
    std::ranges::transform(fds, entries.begin(), [](int fd) { return pollfd{fd, POLLIN, 0}; });
    const int ready = wait(std::span(entries).first(fds.size()), deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw Error(errno, "cannot wait for an event");
  }
  return false;
}

}  // namespace detail

EventQueue::EventQueue() : events_(std::make_shared<detail::EventQueueCore>()) {}
EventQueue::EventQueue(EventQueue&&) noexcept = default;
EventQueue& EventQueue::operator=(EventQueue&&) noexcept = default;
EventQueue::~EventQueue() = default;

// Another thread may take the event between the wake-up and take(): then this waits again.
std::optional<Event> EventQueue::next(Deadline deadline) {
  while (true) {
    if (auto event = events_->take()) return event;
    if (!detail::await_readable(std::array{events_->fd()}, deadline)) return std::nullopt;
  }
}

int EventQueue::fd() const {
  return events_->fd();
}

}  // namespace weft::stream
