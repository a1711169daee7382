#include "verbs/suspension.h"

#include <poll.h>

namespace weft::verbs::detail {

Suspension::Suspension(Executor& executor, Deadline deadline, std::stop_token stop)
    : executor_(executor), deadline_(deadline), stop_(std::move(stop)) {}

// Destroying a suspended task removes its descriptor from the executor, which would resume a
// destroyed coroutine.
Suspension::~Suspension() {
  if (suspended_) executor_.forget(set_->fd());
}

// Changes the epoll set only when the condition's descriptors change.
Suspension::Awaiter Suspension::until_readable(const Descriptors& descriptors) {
  if (!set_) {
    set_.emplace();
    if (const auto fd = stop_.fd()) set_->add(*fd);
  }
  if (watched_ != descriptors) {
    forget_descriptors();
    for (const int fd : descriptors.all()) set_->add(fd);
    watched_ = descriptors;
  }
  return Awaiter(*this);
}

void Suspension::forget_descriptors() {
  for (const int fd : watched_.all()) set_->remove(fd);
  watched_ = {};
}

// The stop has priority over readable descriptors, and these over the deadline, as in Waiter.
std::optional<Woken> Suspension::woken() const {
  if (stop_.requested()) return Woken::stopped;
  for (const int fd : watched_.all()) {
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, 0) > 0) return Woken::ready;
  }
  if (deadline_.passed()) return Woken::timed_out;
  return std::nullopt;
}

// The timer is set once more for each suspension, because the deadline may be further away than
// poll(2) can express.
void Suspension::suspend(std::coroutine_handle<> waiting) {
  if (const int ms = deadline_.poll_timeout_ms(); ms >= 0) {
    const bool added = timer_.fd() >= 0;
    timer_.set(std::chrono::milliseconds(ms));
    if (!added) set_->add(timer_.fd());
  }
  suspended_ = true;
  try {
    executor_.when_readable(set_->fd(), [this, waiting] {
      suspended_ = false;
      waiting.resume();
    });
  } catch (...) {
    suspended_ = false;
    throw;
  }
}

Task<Woken> until(Suspension& suspension, Condition& condition) {
  suspension.forget_descriptors();  // the numbers may belong to other descriptors by now
  while (!condition.holds()) {
    const Descriptors descriptors = condition.descriptors();
    const Woken woken = co_await suspension.until_readable(descriptors);
    if (woken != Woken::ready) co_return woken;
  }
  co_return Woken::ready;
}

}  // namespace weft::verbs::detail
