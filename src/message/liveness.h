// Liveness: decides when a connection asks its peer's device for a sign of life, and when it gives
// the peer up (Options::keepalive).
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

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
  // Something has completed that needs the peer's device.
  void received(Time now) {
    last_received_ = now;
    sign_awaited_ = false;
  }
  // The peer has accessed memory of this side, if `bytes`, which it has read and written in total,
  // has changed.
  void accessed(std::uint64_t bytes, Time now) {
    if (std::exchange(accessed_bytes_, bytes) != bytes) received(now);
  }
  void probe_completed() { probe_under_way_ = false; }
  // To be called once in each interval. After `probe` the caller sends the probe. One at a time: a
  // probe that is still under way serves again.
  [[nodiscard]] Action check(Time now) {
    if (now - last_received_ < interval_) return Action::none;
    if (std::exchange(sign_awaited_, true)) return Action::give_up;
    return std::exchange(probe_under_way_, true) ? Action::none : Action::probe;
  }
  [[nodiscard]] std::chrono::milliseconds silent_for(Time now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - last_received_);
  }

 private:
  std::chrono::milliseconds interval_;
  Time last_received_{};
  std::uint64_t accessed_bytes_ = 0;
  bool sign_awaited_ = false;  // since the last sign of life
  bool probe_under_way_ = false;
};

}  // namespace weft::message::detail
