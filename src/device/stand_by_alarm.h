// How long the progress thread stands by for a program that polls: the program itself prolongs it.
//
// A thread that wakes up in each tick, to see whether the program still polls, takes the processor
// from it each time: 20 to 50 us on a virtual machine. So a program that polls puts the wake-up
// off, by two system calls in each tick, and the thread wakes up once that was not done for a
// tick.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/timer_fd.h"
#include "base/wake_flag.h"

namespace weft::device {

// set() and put_off() may be called by any thread, the rest by the progress thread.
class StandByAlarm {
 public:
  enum class Reason : std::uint8_t {
    set,     // by set()
    passed,  // the tick has passed; whether a program polls is not known
    missed,  // it was not put off in time
  };

  // Sleeps for a tick, or until set(), which it takes back. Each kind of sleep may end early.
  [[nodiscard]] Reason sleep(std::chrono::microseconds tick);
  // As long as put_off() is called, and up to one and a half ticks longer. Ticks grow while it goes
  // on, as longest_tick() has it for a program that polls since `began_ns` of sys::now_ns(). As
  // sleep() where the kernel refuses a timer (timerfd_create(2)).
  [[nodiscard]] Reason sleep_on(std::chrono::microseconds tick, std::uint64_t began_ns);
  // Ends the sleep that is under way, or the next one at once. A system call only in the first
  // case.
  void set();
  // The caller polls. True twice in each tick of sleep_on(): then the caller has to do what the
  // thread would do at the end of a tick.
  [[nodiscard]] bool put_off(std::uint64_t now_ns) {
    return now_ns >= due_ns_.load(std::memory_order_relaxed) && put_off_now(now_ns);
  }
  // In the child after fork(2), which has no such thread: closes the child's copy of the
  // descriptor.
  void close();

 private:
  static constexpr std::uint64_t never = UINT64_MAX;

  [[nodiscard]] bool put_off_now(std::uint64_t now_ns);
  [[nodiscard]] bool has_timer();
  void ring_at(std::uint64_t time_ns);

  WakeFlag flag_;
  std::optional<TimerFd> timer_;       // made with the first sleep_on()
  std::atomic<bool> on_timer_{false};  // the thread waits for timer_, or is about to
  std::atomic<std::uint64_t> began_ns_{0};
  std::atomic<std::uint64_t> due_ns_{never};  // of the next put_off(), while it is heard
};

// How long a tick may be for a program that has polled for so long.
[[nodiscard]] std::chrono::microseconds longest_tick(std::uint64_t polled_ns);

}  // namespace weft::device
