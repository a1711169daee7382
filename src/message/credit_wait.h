// CreditWait: counts and measures how long a session has waited for credits of its peer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace weft::message::detail {

// Without a clock of its own: `now` is an argument.
class CreditWait {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Called whenever it is known whether the session waits.
  void set(bool waiting, Time now) {
    if (waiting == waiting_since_.has_value()) return;
    if (waiting) {
      ++count_;
      waiting_since_ = now;
    } else {
      total_ += now - *waiting_since_;
      waiting_since_.reset();
    }
  }

  [[nodiscard]] bool is_waiting() const { return waiting_since_.has_value(); }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // Includes a wait that has not ended yet.
  [[nodiscard]] std::chrono::nanoseconds total(Time now) const {
    return waiting_since_ ? total_ + (now - *waiting_since_) : total_;
  }

 private:
  std::optional<Time> waiting_since_;
  std::uint64_t count_ = 0;
  std::chrono::nanoseconds total_{0};
};

}  // namespace weft::message::detail
