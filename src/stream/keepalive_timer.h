// Decides when a stream probes its peer, and when it gives the peer up (Options::keepalive).
//
// It measures the time since the last completion. After Keepalive::idle one probe is sent, a write
// of zero bytes that the peer's device answers without its program. If the probe has not completed
// after `interval` times `probes`, the peer is lost. There is one probe only, because the transport
// below is reliable: it retransmits the probe itself.
#pragma once

#include <chrono>
#include <optional>

#include "weft/stream/options.hpp"

namespace weft::stream::detail {

// Without a clock of its own: `now` is an argument. Not thread-safe.
class KeepaliveTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Action { none, send_probe, give_up };

  // A request has completed, which proves that the connection works.
  void received(Time now) { last_received_ = now; }
  void probe_sent(Time now) { probe_sent_ = now; }
  void probe_completed() { probe_sent_.reset(); }
  [[nodiscard]] bool probe_is_under_way() const { return probe_sent_.has_value(); }

  [[nodiscard]] Action due(const Keepalive& keepalive, Time now) const;
  // When due() is to be called again; nothing if an earlier call returned a time that is still to
  // come and is early enough.
  [[nodiscard]] std::optional<Time> next_check(const Keepalive& keepalive, Time now);
  // The timer of the last next_check() is gone.
  void forget_check() { next_check_.reset(); }

 private:
  Time last_received_{};
  std::optional<Time> probe_sent_;  // set while a probe is under way
  std::optional<Time> next_check_;
};

}  // namespace weft::stream::detail
