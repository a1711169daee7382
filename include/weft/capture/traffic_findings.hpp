// Reports findings about the transport: refusals, losses, repetitions, waits, violated rules. What
// happens repeatedly on one side of a connection is one finding, with the first frames.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/progress_sink.hpp"
#include "weft/capture/repeat_clock.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view refused = "refused";
inline constexpr std::string_view not_ready = "receiver-not-ready";
inline constexpr std::string_view sequence_error = "sequence-error";
inline constexpr std::string_view repeated = "repeated";
inline constexpr std::string_view not_captured = "not-captured";
inline constexpr std::string_view unanswered_request = "unanswered-request";
inline constexpr std::string_view congestion = "congestion";
inline constexpr std::string_view reset = "reset";
inline constexpr std::string_view half_open = "half-open";
inline constexpr std::string_view rejected_connection = "connection-rejected";
inline constexpr std::string_view unanswered_connection = "connection-unanswered";
inline constexpr std::string_view one_direction = "one-direction";
// One name for each kind of violation, in the order of Violation::Kind.
inline constexpr std::array<std::string_view, violation_kinds> violations{"bad-checksum",
                                                                          "bad-marker",
                                                                          "bad-version",
                                                                          "bad-header",
                                                                          "unexpected-message",
                                                                          "unexpected-offset",
                                                                          "answer-without-request",
                                                                          "answer-beyond-request",
                                                                          "wrong-length"};
}  // namespace finding

class TableSummary;

class WEFT_API TrafficFindings final : public ProgressSink, public OperationSink {
 public:
  // The most frames in one finding. The sentence has the full count.
  static constexpr std::size_t max_frames = 16;

  // Both must outlive this object.
  TrafficFindings(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_acknowledge(const Origin& origin, std::uint32_t psn) override;
  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_violation(const Origin& origin, const Violation& violation) override;
  void on_congestion(const Origin& origin, Congestion congestion) override;
  void on_operation(const Operation& operation) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override { pairs_.erase(connection); }
  // Ends the trace: reports the findings that were collected.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it. A series of RNR NAKs is left out
  // until it has ended.
  void report_so_far(FindingSink& sink);

 private:
  struct Tally {
    std::uint64_t count = 0;
    std::uint64_t amount = 0;
    std::vector<Stamp> stamps;

    void add(const Stamp& stamp, std::uint64_t more = 0) {
      ++count;
      amount += more;
      if (stamps.size() < max_frames && (stamps.empty() || stamps.back().frame != stamp.frame)) {
        stamps.push_back(stamp);
      }
    }
  };
  // A series of RNR NAKs for the same packet, from the first one to the acknowledgement of the
  // packet.
  struct Train {
    Tally naks;
    std::uint32_t psn = 0;
    Stamp begin;
    Stamp last;
  };
  // How much a side has sent, before and after the other side first asked it to slow down.
  struct Rate {
    std::int64_t first_ns = 0;  // of the first and the last message bytes
    std::int64_t last_ns = 0;
    std::uint64_t bytes = 0;
    bool told = false;
    std::int64_t told_ns = 0;
    std::uint64_t told_bytes = 0;  // of `bytes`, those before

    void add(std::int64_t time_ns, std::uint64_t more);
    void tell(std::int64_t time_ns);
  };
  struct Half {
    Rate rate;
    Tally repeats;
    RepeatClock repeating;
    Tally gaps;
    bool cut = false;   // the snap length cut headers
    bool seen = false;  // something of this side was decoded
    std::uint64_t gap_packets = 0;
    Tally sequence_errors;
    Tally unanswered;
    Tally open;  // those of `unanswered` after which nothing was answered
    Tally marked;
    Tally notified;
    std::array<Tally, violation_kinds> violations;
    std::array<Violation, violation_kinds> first_violation;
    Train train;
  };
  struct Pair {
    Half a;
    Half b;
  };

  void on_progress(const Origin& origin, std::uint64_t bytes) override {
    Half& own = half(origin.connection, origin.side);
    own.seen = true;
    own.repeating.something_new(origin.stamp.time_ns);
    own.rate.add(origin.stamp.time_ns, bytes);
  }
  [[nodiscard]] Half& half(ConnectionId connection, Side side);
  [[nodiscard]] std::string endpoint_name(ConnectionId connection, Side side) const;
  void report(std::string_view kind, ConnectionId connection, const std::vector<Stamp>& stamps,
              std::string sentence);
  void end_train(ConnectionId connection, Side side, Train& train, const Stamp* acknowledged);
  void report_unanswered(const Connection& connection, const std::string& name, const Half& half,
                         TableSummary& summary);
  void report_repeats(ConnectionId connection, const std::string& name, const Half& half);
  [[nodiscard]] std::string slowing_text(ConnectionId connection, Side side) const;
  void report_half(ConnectionId connection, Side side, const Half& half, TableSummary& summary);
  void report_connection(const Connection& connection, TableSummary& summary);
  void report_all(const Connection& connection, TableSummary& summary);

  const ConnectionTable& connections_;
  FindingSink* sink_;
  ConnectionMap<Pair> pairs_;
  bool lacks_packets_ = false;  // of any connection
  // For the connections that are closed before the end.
  std::shared_ptr<TableSummary> closing_;
  std::size_t closed_ = 0;
};

}  // namespace weft::capture
