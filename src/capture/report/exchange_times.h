// Where the time of exchanges went: sums for each procedure, and the slowest ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/histogram.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/storage.hpp"

namespace weft::capture {

// The RPCs of one procedure, or the storage commands of one kind, that have an answer.
struct ProcedureTimes {
  std::string name;
  Histogram latency;
  std::int64_t total_ns = 0;     // sum of the latencies
  std::int64_t transfer_ns = 0;  // of it, while data were transferred by RDMA
  std::uint64_t failed = 0;      // a status other than success
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
  std::int64_t transfer_ns = 0;
  std::string story;  // sentences
};

class ExchangeTimes {
 public:
  // Keeps the `slowest` slowest exchanges. `connections` must outlive this object.
  ExchangeTimes(const ConnectionTable& connections, std::size_t slowest)
      : connections_(connections), slowest_limit_(slowest) {}

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

  void count(std::string name, std::int64_t latency_ns, std::int64_t transfer_ns, bool failed);
  [[nodiscard]] bool is_slow(std::int64_t latency_ns) const;
  void keep(SlowExchange exchange);

  const ConnectionTable& connections_;
  std::size_t slowest_limit_;
  std::map<std::string, ProcedureTimes> procedures_;
  std::multimap<std::int64_t, SlowExchange> slowest_;  // by latency
};

}  // namespace weft::capture
