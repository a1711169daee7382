#include "stream/readiness_notifier.h"

#include <algorithm>
#include <utility>

namespace weft::stream::detail {

int ReadinessNotifier::fd() {
  // Made with the first call: most streams are never watched by a descriptor.
  if (!descriptor_) descriptor_ = std::make_unique<EventFd>();
  observed_.set(true);
  return descriptor_->fd();
}

int ReadinessNotifier::send_fd() {
  if (!send_descriptor_) send_descriptor_ = std::make_unique<EventFd>();
  observed_.set(true);
  return send_descriptor_->fd();
}

void ReadinessNotifier::add(Stream::Watcher* watcher) {
  watchers_.push_back(watcher);
  observed_.set(true);
}

void ReadinessNotifier::remove(Stream::Watcher* watcher) {
  std::erase(watchers_, watcher);
  observed_.set(has_observers());
}

void ReadinessNotifier::attach(std::shared_ptr<EventQueueCore> queue, std::uint64_t cookie) {
  event_queue_ = std::move(queue);
  cookie_ = cookie;
  observed_.set(has_observers());
}

bool ReadinessNotifier::needs_every_arrival() const {
  return std::ranges::any_of(
      watchers_, [](const Stream::Watcher* watcher) { return watcher->needs_every_arrival(); });
}

bool ReadinessNotifier::watchers_look() const {
  return std::ranges::all_of(watchers_,
                             [](const Stream::Watcher* watcher) { return watcher->looks(); });
}

void ReadinessNotifier::report_again() {
  for (Stream::Watcher* watcher : watchers_) watcher->changed(reported_);
}

// Watchers compare nothing themselves, so they are called for changes only.
void ReadinessNotifier::report(const Stream::Readiness& now) {
  if (now == reported_) return;
  reported_ = now;
  for (Stream::Watcher* watcher : watchers_) watcher->changed(now);
}

void ReadinessNotifier::report_connected(int error_number) {
  // Each of the two events is pushed at most once for each stream.
  if (std::exchange(connected_reported_, true)) return;
  event_queue_->push({.type = error_number != 0 ? EventType::failed : EventType::connected,
                      .cookie = cookie_,
                      .error_number = error_number});
}

void ReadinessNotifier::report_shutdown(int error_number) {
  if (std::exchange(shutdown_reported_, true)) return;
  event_queue_->push(
      {.type = EventType::shutdown, .cookie = cookie_, .error_number = error_number});
}

}  // namespace weft::stream::detail
