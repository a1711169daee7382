// Measures the time that a sender lost by retransmitting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace weft::capture {

// A sender that retransmits has made no progress since its last packet with new content. The loss
// is the time from that packet to the last one that only repeats; it is an upper bound.
class RepeatClock {
 public:
  // Notes that a packet with new content was sent at this time.
  void something_new(std::int64_t time_ns) { last_ns_ = time_ns; }
  // Notes that a packet that only repeats was sent at this time. Adds the time since the packet
  // before to lost_ns(), unless there was none or its time is later.
  void repeat(std::int64_t time_ns) {
    if (last_ns_)
      lost_ns_ += static_cast<std::uint64_t>(std::max<std::int64_t>(time_ns - *last_ns_, 0));
    last_ns_ = last_ns_ ? std::max(*last_ns_, time_ns) : time_ns;
  }
  // Returns the sum of all losses.
  [[nodiscard]] std::uint64_t lost_ns() const { return lost_ns_; }

 private:
  std::optional<std::int64_t> last_ns_;
  std::uint64_t lost_ns_ = 0;
};

}  // namespace weft::capture
