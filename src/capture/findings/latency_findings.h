// Reports time that senders lose to TCP's timers, and answers that took far longer than the others
// of their kind.
//
// A receiver delays an acknowledgement by about 40 ms (Linux), and by at most half a second
// (RFC 1122 §4.2.3.2). That costs time only if the sender holds back a short segment until
// everything before it is acknowledged (Nagle's algorithm, RFC 9293 §3.7.4). So a late
// acknowledgement counts only if the sender continues directly after it. If the receiver continues
// instead, it has taken the data late: many such waits of 40 ms show that its host or network holds
// data back until TCP's timers expire.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/progress_sink.hpp"
#include "weft/capture/rpc.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view delayed_acknowledgement = "delayed-acknowledgement";
inline constexpr std::string_view retransmission_timer = "retransmission-timer";
inline constexpr std::string_view slow_answer = "slow-answer";
inline constexpr std::string_view slow_acknowledgement = "slow-acknowledgement";
inline constexpr std::string_view slow_reply = "rpc-slow-reply";
}  // namespace finding

class LatencyFindings final : public ProgressSink, public OperationSink {
 public:
  static constexpr std::size_t max_frames = 16;
  // Procedures whose replies are compared. Names beyond them are not.
  static constexpr std::size_t max_procedures = 4096;

  // Both must outlive this object.
  LatencyFindings(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  void on_operation(const Operation& operation) override;
  void on_rpc(const Rpc& rpc);
  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override;
  // Ends the trace: reports one finding for each kind of wait of each side.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink);

 private:
  struct Waits {
    std::uint64_t count = 0;
    std::int64_t total_ns = 0;
    std::vector<Stamp> stamps;

    void add(const Stamp& begin, const Stamp& end);
  };
  // Latencies in buckets of an eighth of their size: a Histogram would need ten times the memory,
  // for each kind of each connection.
  class Latencies {
   public:
    void add(std::int64_t latency_ns);
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] std::int64_t median_ns() const;

   private:
    std::vector<std::uint32_t> buckets_;
    std::uint64_t count_ = 0;
  };
  // The exchanges of one kind.
  struct Answers {
    Latencies latency;
    std::int64_t slowest_ns = -1;
    Stamp slowest_request;
    Stamp slowest_answer;
    std::uint32_t slowest_xid = 0;  // of RPCs

    // Returns whether it is the slowest so far.
    bool add(std::int64_t latency_ns, const Stamp& request, const Stamp& answer);
    [[nodiscard]] bool is_far(std::int64_t at_least_ns) const;
    // Returns for example "after 5.00 s, which is about 66000 times the median of 150 such requests
    // (75.0 µs)".
    [[nodiscard]] std::string text(const char* exchange) const;
  };
  struct Half {
    std::uint64_t messages = 0;
    // The last message that was acknowledged late, and its acknowledgement.
    std::optional<std::pair<Stamp, Stamp>> late;
    std::optional<std::int64_t> last_sent_ns;
    std::optional<std::int64_t> last_repeat_ns;
    Waits delayed;           // the side itself continued
    Waits taken_late;        // the other side continued, after 40 ms
    std::uint64_t slow = 0;  // the other side continued, after any longer time
    Waits timers;
    std::map<Operation::Kind, Answers> answers;  // or acknowledgements
    std::map<std::string, Answers, std::less<>> procedures;
  };

  void on_progress(const Origin& origin, std::uint64_t bytes) override;
  [[nodiscard]] Half& half(ConnectionId connection, Side side) {
    return pairs_.get(connection)[side == Side::a ? 0 : 1];
  }
  void report(const Connection& connection, Side side, const Half& half);
  void report_delayed(const Connection& connection, Side side, const Half& half);
  void report_answers(const Connection& connection, Side side, const Half& half);
  void report_replies(const Connection& connection, Side side, const Half& half);
  static void add_acknowledgement(Half& own, const Operation& operation);

  const ConnectionTable& connections_;
  FindingSink* sink_;
  ConnectionMap<std::array<Half, 2>> pairs_;
  std::size_t procedures_ = 0;  // in all of them
};

}  // namespace weft::capture
