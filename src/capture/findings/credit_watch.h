// Measures the waits of a sender for credits, from the message that used the last credit to the
// packet that granted one. The wire does not show when the next message was ready. So the wait is
// an upper bound, and it counts only if the sender continued within a time no longer than the wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "capture/findings/allowance.h"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

class CreditWatch {
 public:
  static constexpr std::size_t max_stamps = 16;

  struct Waits {
    std::uint64_t count = 0;
    std::int64_t total_ns = 0;
    std::int64_t longest_ns = 0;
    std::vector<Stamp> stamps;  // of the first waits: begin and end of each
  };

  // A message was sent; `none_left`: it used the last credit. Returns how it waited for a credit.
  LimitWait sent(const Stamp& stamp, bool none_left) {
    const LimitWait wait = waited_ ? judge(stamp) : LimitWait{};
    given(stamp, none_left);
    return wait;
  }
  // Credits were granted or withdrawn.
  void given(const Stamp& stamp, bool none_left) {
    if (none_left == since_.has_value()) return;
    if (none_left) {
      since_ = stamp;
      return;
    }
    waited_ = Wait{*since_, stamp};
    since_.reset();
  }
  // How many credits are used is not known any more: no wait is under way.
  void interrupt() {
    since_.reset();
    waited_.reset();
  }
  [[nodiscard]] const Waits& waits() const { return waits_; }

 private:
  struct Wait {
    Stamp begin;
    Stamp end;
    [[nodiscard]] std::int64_t ns() const { return end.time_ns - begin.time_ns; }
  };

  LimitWait judge(const Stamp& next) {
    const Wait wait = *waited_;
    waited_.reset();
    if (wait.ns() <= 0 || next.time_ns - wait.end.time_ns > wait.ns()) return {};
    ++waits_.count;
    waits_.total_ns += wait.ns();
    waits_.longest_ns = std::max(waits_.longest_ns, wait.ns());
    keep(wait);
    return {wait.begin.time_ns, wait.end.time_ns, wait.end.frame};
  }
  void keep(const Wait& wait) {
    if (waits_.stamps.size() + 2 > max_stamps) return;
    if (waits_.stamps.empty() || waits_.stamps.back().frame != wait.begin.frame) {
      waits_.stamps.push_back(wait.begin);
    }
    waits_.stamps.push_back(wait.end);
  }

  std::optional<Stamp> since_;  // set while no credit is left
  std::optional<Wait> waited_;  // a wait that has ended; the next message decides whether it counts
  Waits waits_;
};

}  // namespace weft::capture
