// TimerQueue: the timers of an event loop, with a descriptor that is readable when one is due.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/timer_fd.h"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class TimerQueue {
 public:
  using Id = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;
  using Work = std::function<void()>;

  TimerQueue();  // throws Error
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // Readable while a timer is due, and once where a timer was cancelled. Then rearm() is to be
  // called, before take_due().
  [[nodiscard]] int fd() const { return descriptor_.get(); }
  // Makes the descriptor readable at the time of the first timer.
  void rearm() { set_descriptor(); }
  Id add(Time at, Work work);
  // False if the timer was taken before.
  bool cancel(Id timer);
  // Removes the first timer that is due at `now`.
  [[nodiscard]] std::optional<Work> take_due(Time now);
  [[nodiscard]] bool empty() const { return timers_.empty(); }
  void clear();

 private:
  void set_descriptor();

  TimerFd descriptor_;
  std::map<std::pair<Time, Id>, Work> timers_;
  std::unordered_map<Id, Time> times_;  // to find a timer by its id
  Id last_ = 0;
};

}  // namespace weft::message::detail
