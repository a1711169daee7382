// Liveness: decides when a connection asks its peer for a sign of life, and when it gives the peer
// up (Options::keepalive).
#pragma once

#include <chrono>

namespace weft::message::detail {

// Without a clock of its own: `now` is an argument.
class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Action { none, probe, give_up };

  // An interval of 0 disables it.
  explicit Liveness(std::chrono::milliseconds interval) : interval_(interval) {}

  [[nodiscard]] bool is_enabled() const { return interval_.count() > 0; }
  [[nodiscard]] std::chrono::milliseconds interval() const { return interval_; }
  // A frame has arrived.
  void received(Time now) {
    last_received_ = now;
    probe_sent_ = false;
  }
  // To be called once in each interval. After `probe` the caller sends the probe.
  [[nodiscard]] Action check(Time now) {
    if (now - last_received_ < interval_) return Action::none;
    if (probe_sent_) return Action::give_up;
    probe_sent_ = true;
    return Action::probe;
  }
  [[nodiscard]] std::chrono::milliseconds silent_for(Time now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - last_received_);
  }

 private:
  std::chrono::milliseconds interval_;
  Time last_received_{};
  bool probe_sent_ = false;  // since the last frame
};

}  // namespace weft::message::detail
