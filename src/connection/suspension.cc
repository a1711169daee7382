#include "connection/suspension.h"

#include <poll.h>

namespace weft::connection::detail {

Suspension::Suspension(Executor& executor, Deadline deadline, std::stop_token stop)
    : executor_(executor), deadline_(deadline), stop_(std::move(stop)) {}

Suspension::~Suspension() {
  if (waits_) executor_.forget(set_->fd());
}

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

std::optional<Woken> Suspension::woken() const {
  if (stop_.requested()) return Woken::stopped;
  for (const int fd : watched_.all()) {
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, 0) > 0) return Woken::ready;
  }
  if (deadline_.passed()) return Woken::late;
  return std::nullopt;
}

void Suspension::suspend(std::coroutine_handle<> waiting) {
  if (const int ms = deadline_.poll_timeout_ms(); ms >= 0) {
    const bool added = timer_.fd() >= 0;
    timer_.set(std::chrono::milliseconds(ms));
    if (!added) set_->add(timer_.fd());
  }
  waits_ = true;
  try {
    executor_.when_readable(set_->fd(), [this, waiting] {
      waits_ = false;
      waiting.resume();
    });
  } catch (...) {
    waits_ = false;
    throw;
  }
}

Task<Woken> until(Suspension& suspension, Condition& condition) {
  suspension.forget_descriptors();  // their numbers may stand for others by now
  while (!condition.holds()) {
    const Descriptors descriptors = condition.descriptors();
    const Woken woken = co_await suspension.until_readable(descriptors);
    if (woken != Woken::ready) co_return woken;
  }
  co_return Woken::ready;
}

}  // namespace weft::connection::detail
