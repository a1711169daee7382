// Follows how much a sender may still send under a limit of its protocol: entries of a queue,
// credits or slots. Says when it had too little left for the message that it sent next.
//
// The wire does not show when that message was ready. So a wait is an upper bound: it begins where
// too little was left, and ends where there was enough. It counts only if the sender continued
// within a time no longer than the wait, and for one message only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/capture/traffic.hpp"

namespace weft::capture {

// A time in which a sender had to wait; empty if it did not.
struct LimitWait {
  std::int64_t from_ns = 0;
  std::int64_t to_ns = 0;
  std::uint64_t frame = 0;  // with which it ended

  [[nodiscard]] std::int64_t ns() const { return std::max<std::int64_t>(0, to_ns - from_ns); }
};

// Returns the time that is in one of two waits or in both.
[[nodiscard]] inline std::int64_t joined_ns(const LimitWait& one, const LimitWait& other) {
  const std::int64_t both_ns =
      std::min(one.to_ns, other.to_ns) - std::max(one.from_ns, other.from_ns);
  return one.ns() + other.ns() - std::max<std::int64_t>(0, both_ns);
}

class Allowance {
 public:
  // From this packet on `left` units are left; negative if more is under way than is allowed.
  void set(const Stamp& stamp, std::int64_t left) {
    if (!levels_.empty() && levels_.back().left == left) return;
    if (levels_.size() == most_levels) levels_.erase(levels_.begin());
    levels_.push_back({stamp, left});
  }
  // A message that needs `needed` units is sent now. Returns when it had to wait for them.
  LimitWait wait_before(const Stamp& stamp, std::int64_t needed) {
    std::size_t at = levels_.size();
    while (at > 0 && levels_[at - 1].left >= needed) --at;
    if (at == levels_.size() || at == 0) return {};
    const Stamp end = levels_[at].since;
    const std::size_t enough = at;
    while (at > 0 && levels_[at - 1].left < needed) --at;
    const LimitWait wait{levels_[at].since.time_ns, end.time_ns, end.frame};
    // What was waited for once is not counted for the next message as well.
    levels_.erase(levels_.begin(), levels_.begin() + static_cast<std::ptrdiff_t>(enough));
    return stamp.time_ns - wait.to_ns <= wait.ns() ? wait : LimitWait{};
  }
  void clear() { levels_.clear(); }

 private:
  // Older levels are forgotten. A wait seems shorter then.
  static constexpr std::size_t most_levels = 32;

  struct Level {
    Stamp since;
    std::int64_t left = 0;
  };

  std::vector<Level> levels_;
};

}  // namespace weft::capture
