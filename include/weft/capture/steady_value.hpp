// Notices that a value of the packets of a sender has changed for good.
#pragma once

#include <optional>

namespace weft::capture {

// A value of the packets of one sender that changes rarely. Single packets with another value, and
// values that change all the time, count as no change.
template <typename T>
class SteadyValue {
 public:
  static constexpr unsigned steady_packets = 8;

  // Adds the value of the next packet. Returns the value before, if the last packets show that it
  // has changed.
  std::optional<T> see(T value) {
    if (known_ && *known_ == value) {
      times_ = 0;
      return std::nullopt;
    }
    times_ = times_ > 0 && next_ == value ? times_ + 1 : 1;
    next_ = value;
    if (times_ < steady_packets) return std::nullopt;
    times_ = 0;
    const std::optional<T> before = known_;
    known_ = value;
    return before;
  }

 private:
  std::optional<T> known_;
  T next_{};
  unsigned times_ = 0;  // consecutive packets with `next_`
};

}  // namespace weft::capture
