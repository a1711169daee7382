// SpinRule: decides whether a thread of the program that waits looks at shared memory for a moment
// before it sleeps. That saves a wake-up of 5 to 50 us and several system calls where what it waits
// for comes soon and no other program needs the processor.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace weft {

// Not thread-safe. Time is an argument.
class SpinRule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::microseconds longest{50};
  // The other side may share this processor, so the thread yields it this often.
  static constexpr std::chrono::microseconds turn{5};
  // Two readings of the clock that are further apart have another thread's work in between.
  static constexpr std::chrono::microseconds disturbance{15};

  // `after_disturbance`: how many sleeps follow without spinning at first.
  explicit SpinRule(unsigned after_disturbance = 16) : after_disturbance_(after_disturbance) {}

  // What look_for_a_moment() has come to. It may have been disturbed even where something came
  // meanwhile: that would have come to a thread that sleeps, too.
  struct Outcome {
    bool found = false;
    bool disturbed = false;
  };

  // To be asked before each sleep.
  [[nodiscard]] bool allows() {
    if (left_out_ == 0) return true;
    --left_out_;
    return false;
  }
  // Whether something came. After each time in vain, twice as many sleeps follow without spinning.
  void learn(bool found) { leave_out(found ? 0 : std::min(2 * next_ + 1, most_after_nothing)); }
  void learn(Outcome outcome) { outcome.disturbed ? learn_disturbed() : learn(outcome.found); }
  // Other work waits for the processor. The scheduler prefers a thread that has slept to one that
  // spins, so spinning would cost more than it saves.
  void learn_disturbed() {
    leave_out(std::min(std::max(2 * next_, after_disturbance_), most_after_disturbance));
  }

 private:
  static constexpr unsigned most_after_nothing = 63;
  static constexpr unsigned most_after_disturbance = 1024;

  void leave_out(unsigned sleeps) { left_out_ = next_ = sleeps; }

  unsigned after_disturbance_;
  unsigned next_ = 0;
  unsigned left_out_ = 0;
};

// Calls `look`, which looks some times in a row, until it has found something, other work wants the
// processor, or SpinRule::longest is over. `longest_handling`: what a look that finds something may
// take by itself.
template <typename Look>
SpinRule::Outcome look_for_a_moment(
    Look look, std::chrono::microseconds longest_handling = SpinRule::disturbance) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto last = start;
  auto yielded = start;
  while (true) {
    const bool found = look();
    const auto now = Clock::now();
    const bool disturbed = now - last > (found ? longest_handling : SpinRule::disturbance);
    if (found || disturbed || now - start >= SpinRule::longest) return {found, disturbed};
    last = now;
    if (now - yielded < SpinRule::turn) continue;
    sched_yield();
    yielded = now;
  }
}

}  // namespace weft
