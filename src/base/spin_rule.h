// SpinRule: decides whether a thread of the program that waits looks at shared memory for a moment
// before it sleeps. That saves a wake-up of 5 to 50 us and several system calls where what it waits
// for comes soon and no other program needs the processor.
#pragma once

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

  // To be asked before each sleep.
  [[nodiscard]] bool allows() {
    if (left_out_ == 0) return true;
    --left_out_;
    return false;
  }
  // Whether something came. After each time in vain, twice as many sleeps follow without spinning.
  void learn(bool found) { leave_out(found ? 0 : std::min(2 * next_ + 1, most_after_nothing)); }
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

}  // namespace weft
