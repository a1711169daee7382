// Converts durations to the types of the C library.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace weft {

// A negative duration becomes zero.
[[nodiscard]] inline timespec timespec_of(std::chrono::nanoseconds length) {
  const auto whole = std::max(length, std::chrono::nanoseconds(0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(whole);
  timespec made{};
  made.tv_sec = static_cast<decltype(made.tv_sec)>(seconds.count());
  made.tv_nsec = static_cast<decltype(made.tv_nsec)>((whole - seconds).count());
  return made;
}

}  // namespace weft
