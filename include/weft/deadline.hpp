// Until when a call may wait.
#pragma once

#include <chrono>
#include <optional>

namespace weft {

// Made from a duration ("this long from now"), from a point in time, or never(). A deadline that
// has passed means: look, and do not wait.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] static Deadline never() { return {}; }
  [[nodiscard]] static Deadline now() { return Clock::now(); }

  template <typename Rep, typename Period>
  Deadline(std::chrono::duration<Rep, Period> from_now)
      : at_(Clock::now() + std::chrono::ceil<Clock::duration>(from_now)) {}
  Deadline(Clock::time_point at) : at_(at) {}

  [[nodiscard]] bool passed() const { return at_ && Clock::now() >= *at_; }
  // For poll(2): milliseconds from now, rounded up; -1 is never.
  [[nodiscard]] int poll_timeout_ms() const {
    if (!at_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at_ - Clock::now()).count();
    constexpr long longest = 1'000'000'000;  // eleven days; the caller looks again then
    return static_cast<int>(left < 0 ? 0 : left > longest ? longest : left);
  }

 private:
  Deadline() = default;
  std::optional<Clock::time_point> at_;
};

}  // namespace weft
