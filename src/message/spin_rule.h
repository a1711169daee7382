// SpinRule: decides whether a loop polls for a while before it sleeps. That saves two system calls
// and a wake-up where the next message comes soon, and costs a processor where it does not.
#pragma once

#include <algorithm>

namespace weft::message::detail {

// Not thread-safe.
class SpinRule {
 public:
  // To be asked before each sleep.
  [[nodiscard]] bool allows() {
    if (left_out_ == 0) return true;
    --left_out_;
    return false;
  }
  // The last time: whether something came. After each time in vain twice as many are left out.
  void learn(bool found) {
    next_ = found ? 0 : std::min(2 * next_ + 1, most_left_out);
    left_out_ = next_;
  }

 private:
  static constexpr unsigned most_left_out = 63;
  unsigned next_ = 0;
  unsigned left_out_ = 0;
};

}  // namespace weft::message::detail
