#include "stream/events.h"

#include <cerrno>

#include "stream/pump.h"

namespace weft::stream {
namespace detail {

void Events::push(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  waits_.set(true);
}

std::optional<Event> Events::take() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  std::optional<Event> event = std::move(events_.front());
  events_.pop_front();
  waits_.set(!events_.empty());
  return event;
}

bool await_readable(int fd, const Deadline& deadline) {
  while (!deadline.passed()) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = wait({&entry, 1}, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw Error(errno, "cannot wait for an event");
  }
  return false;
}

}  // namespace detail

EventQueue::EventQueue() : events_(std::make_shared<detail::Events>()) {}
EventQueue::EventQueue(EventQueue&&) noexcept = default;
EventQueue& EventQueue::operator=(EventQueue&&) noexcept = default;
EventQueue::~EventQueue() = default;

std::optional<Event> EventQueue::next(Deadline deadline) {
  while (true) {
    if (auto event = events_->take()) return event;
    if (!detail::await_readable(events_->fd(), deadline)) return std::nullopt;
  }
}

int EventQueue::fd() const {
  return events_->fd();
}

}  // namespace weft::stream
