// Limits how long a call may block.
#pragma once

#include <chrono>
#include <optional>

#include "weft/export.hpp"

namespace weft {

// The time that deadlines are measured by: that of std::chrono::steady_clock. In the thread and the
// programs of a simulation (weft/simulation.hpp) it is the virtual time, which the standard clock
// does not know.
[[nodiscard]] WEFT_API std::chrono::steady_clock::time_point steady_now();

// Converts from a duration, which counts from now on, or from a point in time. A call with a
// deadline that has passed checks once and does not block.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // Without limit.
  [[nodiscard]] static Deadline never() { return {}; }
  // The call only looks, and does not block.
  [[nodiscard]] static Deadline now() { return steady_now(); }

  // So long from now, rounded up to the unit of the clock.
  template <typename Rep, typename Period>
  Deadline(std::chrono::duration<Rep, Period> from_now)
      : at_(steady_now() + std::chrono::ceil<Clock::duration>(from_now)) {}
  // At this time of steady_now().
  Deadline(Clock::time_point at) : at_(at) {}

  // Whether the time is over; never for Deadline::never().
  [[nodiscard]] bool passed() const { return at_ && steady_now() >= *at_; }
  // The remaining time in milliseconds, rounded up, for poll(2); -1 is without limit. Cut to about
  // eleven days, so a caller must check passed() after a timeout.
  [[nodiscard]] int poll_timeout_ms() const {
    if (!at_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at_ - steady_now()).count();
    constexpr long longest = 1'000'000'000;
    return static_cast<int>(left < 0 ? 0 : left > longest ? longest : left);
  }

 private:
  Deadline() = default;
  std::optional<Clock::time_point> at_;
};

}  // namespace weft
