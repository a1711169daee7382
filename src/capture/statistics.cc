#include "weft/capture/statistics.hpp"

#include <numeric>

namespace weft::capture {

std::uint64_t SideStatistics::all_violations() const {
  return std::accumulate(violations.begin(), violations.end(), std::uint64_t{0});
}

SideStatistics& Statistics::side(ConnectionId connection, Side side) {
  return connections_.get(connection).of(side);
}

// A connection without events has no entry, and reading does not make one.
const ConnectionStatistics& Statistics::of(ConnectionId connection) const {
  static const ConnectionStatistics none;
  const ConnectionStatistics* known = connections_.find(connection);
  return known == nullptr ? none : *known;
}

void Statistics::on_operation(const Operation& operation) {
  ++operations_;
  auto& kind =
      side(operation.connection, operation.side).kinds[static_cast<std::size_t>(operation.kind)];
  ++kind.count;
  kind.bytes += operation.bytes;
  if (operation.outcome != Operation::Outcome::complete) ++kind.not_complete;
  if (const std::int64_t latency = operation.latency_ns(); latency >= 0) kind.latency.add(latency);
}

// Counts message bytes over time. Requests carry none, but they are progress.
void Statistics::on_progress(const Origin& origin, std::uint64_t bytes) {
  ConnectionStatistics& connection = connections_.get(origin.connection);
  SideStatistics& own = connection.of(origin.side);
  const std::int64_t time_ns = origin.stamp.time_ns;
  own.repeating.something_new(time_ns);
  if (bytes == 0) return;
  if (!connection.carried_from_ns) connection.carried_from_ns = time_ns;
  own.carried.add(time_ns - *connection.carried_from_ns, bytes);
}

// RNR NAKs and sequence errors are part of normal recovery and have counters of their own.
void Statistics::on_refusal(const Origin& origin, const Refusal& refusal) {
  auto& own = side(origin.connection, origin.side);
  if (refusal.kind == Refusal::Kind::receiver_not_ready) {
    ++own.receiver_not_ready;
    own.receiver_not_ready_ns += refusal.timer_ns;
    return;
  }
  if (refusal.kind == Refusal::Kind::sequence_error) {
    ++own.sequence_errors;
    return;
  }
  ++own.refusals;
  own.last_refusal = refusal;
  own.last_refusal_at = origin.stamp;
}

void Statistics::on_repeat(const Origin& origin, std::uint64_t wire_bytes) {
  auto& own = side(origin.connection, origin.side);
  ++own.repeats;
  own.repeated_bytes += wire_bytes;
  own.repeating.repeat(origin.stamp.time_ns);
}

void Statistics::on_gap(const Origin& origin, const Gap& gap) {
  auto& own = side(origin.connection, origin.side);
  if (gap.cut) {
    own.cut_bytes += gap.wire_bytes;
    return;
  }
  ++own.gaps;
  own.lost_bytes += gap.wire_bytes;
  own.lost_packets += gap.packets;
}

void Statistics::on_violation(const Origin& origin, const Violation& violation) {
  ++side(origin.connection, origin.side).violations[static_cast<std::size_t>(violation.kind)];
}

void Statistics::on_congestion(const Origin& origin, Congestion congestion) {
  auto& own = side(origin.connection, origin.side);
  const bool marked = congestion == Congestion::marked;
  ++(marked ? own.congestion_marked : own.congestion_notified);
  ConnectionStatistics& connection = connections_.get(origin.connection);
  const std::int64_t time_ns = origin.stamp.time_ns;
  if (!connection.carried_from_ns) connection.carried_from_ns = time_ns;
  auto& sender = connection.of(marked ? origin.side : other(origin.side)).congestion;
  if (!sender) sender.emplace();
  sender->add(time_ns - *connection.carried_from_ns, 1);
}

}  // namespace weft::capture
