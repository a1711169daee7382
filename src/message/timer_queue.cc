#include "message/timer_queue.h"

#include <cerrno>

#include "weft/error.hpp"

namespace weft::message::detail {

TimerQueue::TimerQueue() {
  if (!descriptor_.valid()) throw Error(errno, "cannot create the timer of an event loop");
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
  descriptor_.set(timers_.empty() ? std::nullopt : std::optional(timers_.begin()->first.first));
}

}  // namespace weft::message::detail
