// Requests without an answer at the end of a capture. A capture may be stopped at any time, so one
// that was sent shortly before is no finding: its answer may have come right after.
#pragma once

#include <cstdint>

namespace weft::capture {

// An answer that takes longer than this is missing.
inline constexpr std::int64_t longest_answer_ns = 1'000'000'000;

// Returns whether the answer to a request of `asked_ns` may have come after the end of the capture.
[[nodiscard]] constexpr bool may_be_answered_later(std::int64_t asked_ns, std::int64_t end_ns) {
  return end_ns - asked_ns < longest_answer_ns;
}

}  // namespace weft::capture
