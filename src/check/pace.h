// How often something may be done.
#pragma once

#include <cstdint>

#include "base/kernel_clock.h"

namespace weft::check {

[[nodiscard]] inline std::uint64_t now_ns() {
  return kernel_clock_ns(CLOCK_MONOTONIC);
}

// The first `at_once` times at any time, so that a short program is checked well, and then once in
// each interval. Not thread-safe.
class Pace {
 public:
  Pace(unsigned at_once, std::uint64_t interval_ns) : left_(at_once), interval_ns_(interval_ns) {}

  [[nodiscard]] bool allows(std::uint64_t now) const {
    return left_ > 0 || now - last_ns_ >= interval_ns_;
  }
  void note(std::uint64_t now) {
    if (left_ > 0) --left_;
    last_ns_ = now;
  }

 private:
  unsigned left_;
  std::uint64_t interval_ns_;
  std::uint64_t last_ns_ = 0;
};

}  // namespace weft::check
