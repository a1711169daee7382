#include "message/timer_queue.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "weft/error.hpp"

namespace weft::message::detail {

// CLOCK_MONOTONIC is the clock of std::chrono::steady_clock.
TimerQueue::TimerQueue() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (fd_ < 0) throw Error(errno, "cannot create the timer of an event loop");
}

TimerQueue::~TimerQueue() {
  close(fd_);
}

TimerQueue::Id TimerQueue::add(Time at, Work work) {
  const Id id = ++last_;
  timers_.emplace(std::pair(at, id), std::move(work));
  times_.emplace(id, at);
  if (timers_.begin()->first.second == id) set_descriptor();
  return id;
}

// The descriptor is not set to a later time: it becomes readable too early once, which is harmless.
bool TimerQueue::cancel(Id timer) {
  const auto found = times_.find(timer);
  if (found == times_.end()) return false;
  timers_.erase({found->second, timer});
  times_.erase(found);
  return true;
}

std::optional<TimerQueue::Work> TimerQueue::take_due(Time now) {
  if (timers_.empty() || timers_.begin()->first.first > now) return std::nullopt;
  std::optional<Work> work = std::move(timers_.begin()->second);
  times_.erase(timers_.begin()->first.second);
  timers_.erase(timers_.begin());
  set_descriptor();
  return work;
}

void TimerQueue::clear() {
  timers_.clear();
  times_.clear();
}

// Sets the descriptor to the first timer, or to never.
void TimerQueue::set_descriptor() {
  itimerspec when{};
  if (!timers_.empty()) {
    const auto since = timers_.begin()->first.first.time_since_epoch();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    constexpr std::int64_t second = 1'000'000'000;
    when.it_value.tv_sec = static_cast<time_t>(ns / second);
    when.it_value.tv_nsec = static_cast<long>(ns % second);
  }
  timerfd_settime(fd_, TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace weft::message::detail
