#include "capture/report/wait_times.h"

#include <algorithm>
#include <iterator>

#include "weft/capture/quality.hpp"
#include "wire/ib_transport.h"

namespace weft::capture {

std::ptrdiff_t TimeSpans::add(std::int64_t from_ns, std::int64_t to_ns, std::uint64_t frame) {
  if (from_ns >= to_ns) return 0;
  // Most spans continue the last one.
  if (!spans_.empty()) {
    const auto last = std::prev(spans_.end());
    if (last->first <= from_ns && last->second.time_ns >= from_ns) {
      if (last->second.time_ns < to_ns) last->second = {to_ns, frame};
      return 0;
    }
  }
  std::ptrdiff_t more = 1;
  auto next = spans_.upper_bound(from_ns);
  if (next != spans_.begin() && std::prev(next)->second.time_ns >= from_ns) {
    next = std::prev(next);
    from_ns = next->first;
  }
  while (next != spans_.end() && next->first <= to_ns) {
    if (next->second.time_ns > to_ns) {
      to_ns = next->second.time_ns;
      frame = next->second.frame;
    }
    next = spans_.erase(next);
    --more;
  }
  spans_.emplace_hint(next, from_ns, End{to_ns, frame});
  return more;
}

// Passes the parts of [from_ns, to_ns) that are in the set.
template <typename Visit>
void TimeSpans::visit(std::int64_t from_ns, std::int64_t to_ns, const Visit& visit) const {
  auto next = spans_.upper_bound(from_ns);
  if (next != spans_.begin()) next = std::prev(next);
  for (; next != spans_.end() && next->first < to_ns; ++next) {
    const std::int64_t begin_ns = std::max(from_ns, next->first);
    const std::int64_t end_ns = std::min(to_ns, next->second.time_ns);
    if (begin_ns < end_ns) visit(begin_ns, end_ns, next->second.frame);
  }
}

std::int64_t TimeSpans::within(std::int64_t from_ns, std::int64_t to_ns) const {
  std::int64_t sum_ns = 0;
  visit(from_ns, to_ns, [&](std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t /*frame*/) {
    sum_ns += end_ns - begin_ns;
  });
  return sum_ns;
}

std::uint64_t TimeSpans::last_frame(std::int64_t from_ns, std::int64_t to_ns) const {
  std::uint64_t last = 0;
  visit(from_ns, to_ns,
        [&](std::int64_t /*begin_ns*/, std::int64_t /*end_ns*/, std::uint64_t frame) {
          last = frame;
        });
  return last;
}

std::int64_t TimeSpans::within_but_not(std::int64_t from_ns, std::int64_t to_ns,
                                       const TimeSpans& other) const {
  std::int64_t sum_ns = 0;
  visit(from_ns, to_ns, [&](std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t /*frame*/) {
    sum_ns += end_ns - begin_ns - other.within(begin_ns, end_ns);
  });
  return sum_ns;
}

WaitTimes::Parts WaitTimes::between(ConnectionId connection, std::int64_t from_ns,
                                    std::int64_t to_ns) const {
  const Waits* const known = waits_.find(connection);
  if (known == nullptr) return {};
  return {.receives_ns = known->receives.within(from_ns, to_ns),
          .repeats_ns = known->repeats.within_but_not(from_ns, to_ns, known->receives),
          .ready_frame = known->receives.last_frame(from_ns, to_ns),
          .repeated_frame = known->repeats.last_frame(from_ns, to_ns),
          .lost_before_capture = known->lost.within(from_ns, to_ns) > 0};
}

void WaitTimes::add(TimeSpans& spans, std::int64_t from_ns, const Stamp& to) {
  add(spans, from_ns, to.time_ns, to.frame);
}

void WaitTimes::add(TimeSpans& spans, std::int64_t from_ns, std::int64_t to_ns,
                    std::uint64_t frame) {
  spans_in_all_ += static_cast<std::size_t>(spans.add(from_ns, to_ns, frame));
  if (spans.size() == 0) return;
  if (spans.size() <= most_spans && spans_in_all_ <= most_spans_in_all) return;
  spans.remove_oldest();
  --spans_in_all_;
}

// A sender that repeats has made no progress since its last packet (RepeatClock). TCP repeats a
// byte to probe an idle connection (RFC 9293 §3.8.4), which shows no loss.
void WaitTimes::on_repeat(const Origin& origin, std::uint64_t wire_bytes) {
  const Connection* const connection = connections_.find(origin.connection);
  const bool iwarp = connection != nullptr && connection->transport == Transport::iwarp;
  if (iwarp && wire_bytes <= 1) return;
  Half& sender = half(origin);
  const std::int64_t now_ns = origin.stamp.time_ns;
  if (sender.last_ns) {
    add(waits_.get(origin.connection).repeats, *sender.last_ns, origin.stamp);
    sender.last_ns = std::max(*sender.last_ns, now_ns);
  } else {
    sender.last_ns = now_ns;
  }
}

// Only the retransmission is in the capture.
void WaitTimes::on_late(const Origin& origin, std::int64_t delay_ns) {
  if (delay_ns <= longest_detour_ns) return;
  Waits& waits = waits_.get(origin.connection);
  const std::int64_t from_ns = origin.stamp.time_ns - delay_ns;
  add(waits.repeats, from_ns, origin.stamp);
  add(waits.lost, from_ns, origin.stamp);
}

// The requester may not send the packet again before the timer ends (InfiniBand §9.7.5.2.8).
void WaitTimes::on_refusal(const Origin& origin, const Refusal& refusal) {
  if (refusal.kind != Refusal::Kind::receiver_not_ready) return;
  Half& receiver = half(origin);
  const std::int64_t now_ns = origin.stamp.time_ns;
  if (!receiver.not_ready || receiver.not_ready->psn != refusal.psn) {
    receiver.not_ready = NotReady{refusal.psn, now_ns};
  }
  add(waits_.get(origin.connection).receives, receiver.not_ready->since_ns,
      now_ns + static_cast<std::int64_t>(refusal.timer_ns), origin.stamp.frame);
}

void WaitTimes::on_acknowledge(const Origin& origin, std::uint32_t psn) {
  Waits* const known = waits_.find(origin.connection);
  if (known == nullptr) return;
  Half& receiver = known->halves[origin.side == Side::a ? 0 : 1];
  if (!receiver.not_ready || wire::psn_distance(receiver.not_ready->psn, psn) < 0) return;
  add(known->receives, receiver.not_ready->since_ns, origin.stamp);
  receiver.not_ready.reset();
}

void WaitTimes::on_window(const Origin& origin, bool open) {
  Half& receiver = half(origin);
  if (!open && !receiver.window_closed_ns) receiver.window_closed_ns = origin.stamp.time_ns;
  if (!open || !receiver.window_closed_ns) return;
  add(waits_.get(origin.connection).receives, *receiver.window_closed_ns, origin.stamp);
  receiver.window_closed_ns.reset();
}

void WaitTimes::on_forget(ConnectionId connection) {
  const Waits* const known = waits_.find(connection);
  if (known == nullptr) return;
  spans_in_all_ -= known->receives.size() + known->repeats.size() + known->lost.size();
  waits_.erase(connection);
}

}  // namespace weft::capture
