// RPCs over RDMA, out of the traffic of all connections: sends become headers, chunk lists
// segments, reads and writes their bytes, and each call meets its reply. Both sides of a connection
// may call (RFC 8167).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/bytes.hpp"
#include "weft/capture/reassembly.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

struct RpcLimits {
  // Bytes of messages that are open at a time; more are dropped and marked so.
  std::uint64_t open_bytes = Reassembly::default_budget_bytes;
  // Calls of one side of one connection without a reply; the oldest is given up. Clients allow
  // themselves some hundred at most.
  std::size_t open_calls = 4096;
  // XIDs that were answered, remembered to tell a retransmission from a new call.
  std::size_t answered_calls = 4096;
  // Of all connections. Beyond them the older half of each connection's calls is given up, or of
  // its XIDs forgotten. call_bytes: what open calls have inline, and 512 for each segment of
  // theirs.
  std::size_t open_calls_in_all = 65'536;
  std::size_t call_bytes = 128U << 20;
  std::size_t answered_in_all = 262'144;
};

// Sums over a trace or a connection.
struct RpcCounts {
  std::uint64_t calls = 0;  // without retransmissions
  std::uint64_t replies = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t unanswered = 0;
  std::uint64_t replies_without_call = 0;
  std::uint64_t errors = 0;           // RDMA_ERROR
  std::uint64_t done = 0;             // RDMA_DONE
  std::uint64_t malformed = 0;        // sends that are no RPC-over-RDMA where all others are
  std::uint64_t without_segment = 0;  // bytes read or written where no open call has memory
};

class WEFT_API RpcTracker final : public TrafficSink {
 public:
  // `sink` must outlive this.
  explicit RpcTracker(RpcSink& sink, const RpcLimits& limits = {});
  ~RpcTracker() override;

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_end(const Origin& origin, bool reset) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override;
  // The trace is at its end: calls without a reply are told.
  void finish();

  // Whether RPC-over-RDMA was recognised on the connection.
  [[nodiscard]] bool recognised(ConnectionId connection) const;
  // Of the trace so far, and of one connection that is not forgotten.
  [[nodiscard]] const RpcCounts& counts() const;
  [[nodiscard]] RpcCounts counts(ConnectionId connection) const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
