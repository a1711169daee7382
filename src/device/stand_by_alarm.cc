#include "device/stand_by_alarm.h"

#include <algorithm>

#include "base/full_barrier.h"
#include "device/system.h"

namespace weft::device {
namespace {

constexpr std::chrono::microseconds longest_stand_by{1000};
// The same while a program goes on for long.
constexpr std::chrono::microseconds longest_steady_stand_by{4000};
// In relation to the time for which the program has polled already: so much later, at most, does
// the thread notice that it has stopped.
constexpr std::uint64_t stand_by_share = 16;

// A program that polls puts the alarm off in the middle of a tick. It may lose its processor to
// another program for a whole one meanwhile.
struct Times {
  explicit Times(std::chrono::microseconds tick)
      : put_off_ns(static_cast<std::uint64_t>(tick.count()) * 1000 / 2), ring_ns(3 * put_off_ns) {}
  std::uint64_t put_off_ns;
  std::uint64_t ring_ns;
};

}  // namespace

std::chrono::microseconds longest_tick(std::uint64_t polled_ns) {
  const std::chrono::microseconds share{polled_ns / 1000 / stand_by_share};
  return std::clamp(share, longest_stand_by, longest_steady_stand_by);
}

StandByAlarm::Reason StandByAlarm::sleep(std::chrono::microseconds tick) {
  return flag_.sleep(tick) ? Reason::set : Reason::passed;
}

StandByAlarm::Reason StandByAlarm::sleep_on(std::chrono::microseconds tick,
                                            std::uint64_t began_ns) {
  if (!has_timer()) return sleep(tick);
  const Times times(tick);
  const std::uint64_t now_ns = sys::now_ns();
  ring_at(now_ns + times.ring_ns);  // before set() may make it ring
  on_timer_.store(true, std::memory_order_release);
  full_barrier();  // either set() sees that, or this thread sees the flag
  if (!flag_.is_set()) {
    began_ns_.store(began_ns, std::memory_order_relaxed);
    due_ns_.store(now_ns + times.put_off_ns, std::memory_order_release);
    pollfd entry{.fd = timer_->get(), .events = POLLIN, .revents = 0};
    (void)sys::poll({&entry, 1}, std::nullopt, nullptr);
    due_ns_.store(never, std::memory_order_relaxed);
  }
  on_timer_.store(false, std::memory_order_relaxed);
  return flag_.take() ? Reason::set : Reason::missed;
}

void StandByAlarm::set() {
  flag_.set();
  full_barrier();
  if (on_timer_.load(std::memory_order_acquire)) ring_at(0);
}

bool StandByAlarm::put_off_now(std::uint64_t now_ns) {
  auto due_ns = due_ns_.load(std::memory_order_acquire);
  const Times times(longest_tick(now_ns - began_ns_.load(std::memory_order_relaxed)));
  if (now_ns < due_ns || !due_ns_.compare_exchange_strong(due_ns, now_ns + times.put_off_ns)) {
    return false;
  }
  ring_at(now_ns + times.ring_ns);
  full_barrier();
  // It may have been put off behind set().
  if (flag_.is_set()) ring_at(0);
  return true;
}

void StandByAlarm::close() {
  on_timer_ = false;
  due_ns_ = never;
  timer_.reset();
}

bool StandByAlarm::has_timer() {
  if (!timer_) timer_.emplace();
  if (!timer_->valid()) timer_.reset();
  return timer_.has_value();
}

// A time that is over makes it ring at once.
void StandByAlarm::ring_at(std::uint64_t time_ns) {
  timer_->set(TimerFd::Time(std::chrono::nanoseconds(time_ns)));
}

}  // namespace weft::device
