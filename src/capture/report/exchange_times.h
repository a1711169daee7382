// Where the time of exchanges went: sums for each procedure, and the slowest ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/report/wait_times.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/histogram.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/storage.hpp"

namespace weft::capture {

// Where the time of exchanges went. The first four are parts of the latency, and make it up.
struct TimeParts {
  std::int64_t transfer_ns = 0;  // while data were transferred by RDMA, without the waits below
  std::int64_t receives_ns = 0;  // until a receiver was ready: RNR NAKs, a closed TCP window
  std::int64_t repeats_ns = 0;   // until packets had been sent again
  std::int64_t server_ns = 0;    // the rest, which is the responder's
  // Before it began: because the caller had no credits left, because its queue was full (NVMe), or
  // because no slot of its session was free (NFS 4.1 and later). These do not overlap.
  std::int64_t credits_ns = 0;
  std::int64_t queue_ns = 0;
  std::int64_t slots_ns = 0;
  std::int64_t client_ns = 0;  // before it began, while the caller had nothing outstanding
  // Of a single exchange: the frames with which it went on after the waits; 0 without one.
  std::uint64_t ready_frame = 0;
  std::uint64_t repeated_frame = 0;
  bool lost_before_capture = false;  // the capture has the repetition only

  // Before it began, because of a limit of its protocol.
  [[nodiscard]] std::int64_t held_ns() const { return credits_ns + queue_ns + slots_ns; }
  TimeParts& operator+=(const TimeParts& other);
};

// The RPCs of one procedure, or the storage commands of one kind, that have an answer.
struct ProcedureTimes {
  std::string name;
  Histogram latency;
  std::int64_t total_ns = 0;  // sum of the latencies
  TimeParts parts;
  std::uint64_t failed = 0;  // a status other than success
};

// One exchange among the slowest: an RPC, a storage command, or an operation on a connection
// without either.
struct SlowExchange {
  ConnectionId connection = 0;
  Side side = Side::a;  // the caller or requester
  std::string name;
  std::optional<std::uint32_t> xid;
  Stamp first;
  Stamp last;
  std::int64_t latency_ns = 0;
  TimeParts parts;
  std::string story;  // sentences
};

class ExchangeTimes {
 public:
  // Keeps the `slowest` slowest exchanges. The other arguments must outlive this object; `waits`
  // must know of the traffic up to the end of each exchange.
  ExchangeTimes(const ConnectionTable& connections, const WaitTimes& waits, std::size_t slowest)
      : connections_(connections), waits_(waits), slowest_limit_(slowest) {}

  void add(const Rpc& rpc);
  void add(const StorageCommand& command);
  // For operations of connections without RPCs and storage commands.
  void add(const Operation& operation);

  // Those that cost the most time first. Procedures beyond max_procedures are counted together.
  [[nodiscard]] std::vector<const ProcedureTimes*> procedures() const;
  // The slowest first.
  [[nodiscard]] std::vector<SlowExchange> slowest() const;

 private:
  static constexpr std::size_t max_procedures = 128;

  // The parts of the latency between two times.
  [[nodiscard]] TimeParts parts_of(ConnectionId connection, std::int64_t from_ns,
                                   std::int64_t latency_ns, std::int64_t transfer_from_ns,
                                   std::int64_t transfer_ns) const;
  void count(std::string name, std::int64_t latency_ns, const TimeParts& parts, bool failed);
  [[nodiscard]] bool is_slow(std::int64_t latency_ns) const;
  void keep(SlowExchange exchange);

  const ConnectionTable& connections_;
  const WaitTimes& waits_;
  std::size_t slowest_limit_;
  std::map<std::string, ProcedureTimes> procedures_;
  std::multimap<std::int64_t, SlowExchange> slowest_;  // by latency
};

}  // namespace weft::capture
