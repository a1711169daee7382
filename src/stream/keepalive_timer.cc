#include "stream/keepalive_timer.h"

namespace weft::stream::detail {

KeepaliveTimer::Action KeepaliveTimer::due(const Keepalive& keepalive, Time now) const {
  // One probe is enough: it is a write that the peer's device acknowledges by itself. TCP or the
  // queue pair repeats it.
  if (probe_sent_) {
    const bool late = now - *probe_sent_ >= keepalive.interval * keepalive.probes;
    return late ? Action::give_up : Action::none;
  }
  return now - last_received_ >= keepalive.idle ? Action::send_probe : Action::none;
}

// Timers of the stream thread cannot be moved, so a received message does not postpone the check:
// the check happens, finds that it is too early, and asks for the next one.
std::optional<KeepaliveTimer::Time> KeepaliveTimer::next_check(const Keepalive& keepalive,
                                                               Time now) {
  const Time next = probe_sent_ ? *probe_sent_ + keepalive.interval * keepalive.probes
                                : last_received_ + keepalive.idle;
  if (next_check_ && *next_check_ <= next && *next_check_ > now) return std::nullopt;
  next_check_ = next;
  return next;
}

}  // namespace weft::stream::detail
