// Counters and sums for each connection.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "weft/capture/connection_map.hpp"
#include "weft/capture/histogram.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/progress_sink.hpp"
#include "weft/capture/repeat_clock.hpp"
#include "weft/capture/time_series.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

inline constexpr std::size_t operation_kinds = 7;
inline constexpr std::size_t violation_kinds = 9;

struct KindStatistics {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t not_complete = 0;  // incomplete, unanswered or refused
  Histogram latency;               // in nanoseconds, of the operations with a known latency
};

// The operations that one side requested, and the packets that it sent.
struct WEFT_API SideStatistics {
  std::array<KindStatistics, operation_kinds> kinds;
  std::uint64_t repeated_bytes = 0;  // on the wire
  std::uint64_t repeats = 0;
  RepeatClock repeating;           // time lost by repeating
  TimeSeriesOf<64> carried;        // message bytes that it sent, from carried_from_ns on
  std::uint64_t lost_bytes = 0;    // not captured, or not decodable because of that
  std::uint64_t cut_bytes = 0;     // iWARP: not decodable because the snap length cut their headers
  std::uint64_t lost_packets = 0;  // InfiniBand only
  std::uint64_t gaps = 0;
  std::array<std::uint64_t, violation_kinds> violations{};
  std::uint64_t refusals = 0;  // NAKs and Terminates it sent that end the connection
  std::uint64_t receiver_not_ready = 0;
  std::uint64_t receiver_not_ready_ns = 0;  // sum of the timers in its RNR NAKs
  std::uint64_t sequence_errors = 0;        // NAKs that request a retransmission
  std::uint64_t congestion_marked = 0;      // packets it sent that arrived with a congestion mark
  std::uint64_t congestion_notified = 0;    // congestion notifications it sent
  // Why this side should slow down, over time, from carried_from_ns on: its packets that met
  // congestion, and notifications to it. Not set if there were none.
  std::optional<TimeSeriesOf<64>> congestion;
  Refusal last_refusal;
  Stamp last_refusal_at;

  // Returns the number of violations of all kinds.
  [[nodiscard]] std::uint64_t all_violations() const;
};

struct ConnectionStatistics {
  SideStatistics a;
  SideStatistics b;
  std::optional<std::int64_t> carried_from_ns;  // start of the first message

  // Returns the sums of one side. The reference is valid as long as this object.
  [[nodiscard]] SideStatistics& of(Side side) { return side == Side::a ? a : b; }
  [[nodiscard]] const SideStatistics& of(Side side) const { return side == Side::a ? a : b; }
};

class WEFT_API Statistics final : public ProgressSink, public OperationSink {
 public:
  void on_operation(const Operation& operation) override;
  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_violation(const Origin& origin, const Violation& violation) override;
  void on_congestion(const Origin& origin, Congestion congestion) override;
  // To read the sums of a connection that is forgotten, add a sink before this one and call of() in
  // its on_forget.
  void on_forget(ConnectionId connection) override { connections_.erase(connection); }

  // Returns the sums of a connection, or zeros if nothing was counted. Valid until the next event.
  [[nodiscard]] const ConnectionStatistics& of(ConnectionId connection) const;
  // Returns the number of operations of all connections, including forgotten ones.
  [[nodiscard]] std::uint64_t operations() const { return operations_; }

 private:
  void on_progress(const Origin& origin, std::uint64_t bytes) override;
  [[nodiscard]] SideStatistics& side(ConnectionId connection, Side side);

  ConnectionMap<ConnectionStatistics> connections_;
  std::uint64_t operations_ = 0;
};

}  // namespace weft::capture
