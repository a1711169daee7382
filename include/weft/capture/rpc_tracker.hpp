// Finds the RPCs over RDMA in the traffic of all connections. It decodes Sends as RPC-over-RDMA
// headers, registers the segments of their chunk lists, collects the bytes that Reads and Writes
// move, and matches replies to calls. Both sides of a connection may send calls (RFC 8167).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/bytes.hpp"
#include "weft/capture/connection.hpp"
#include "weft/capture/reassembly.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

struct RpcLimits {
  // Bytes of all open messages; more are dropped and marked with a flaw.
  std::uint64_t open_bytes = Reassembly::default_budget_bytes;
  // Calls of one side of one connection without a reply; above the limit the oldest is reported as
  // unanswered. Clients limit themselves to some hundred.
  std::size_t open_calls = 4096;
  // XIDs of answered calls that are kept to distinguish a retransmission from a new call.
  std::size_t answered_calls = 4096;
  // Limits over all connections. Above them each connection reports the older half of its calls as
  // unanswered, or forgets the older half of its XIDs. call_bytes counts the inline bytes of open
  // calls, and 512 for each of their segments.
  std::size_t open_calls_in_all = 65'536;
  std::size_t call_bytes = 128U << 20;
  std::size_t answered_in_all = 262'144;
  // How many frames of the capture a packet may come late: a part of an answered RPC after its
  // reply, or a call after what belongs to it.
  std::uint64_t late_frames = 4096;
  // Limits over all connections for what waits because the capture may be out of order: bytes that
  // came before their call, and answered RPCs that lack a part.
  std::uint64_t early_bytes = 16U << 20;
  std::size_t settling_rpcs = 1024;
};

// Sums over a trace or a connection.
struct RpcCounts {
  std::uint64_t calls = 0;  // without retransmissions
  std::uint64_t replies = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t unanswered = 0;
  std::uint64_t replies_without_call = 0;
  std::uint64_t errors = 0;  // RDMA_ERROR
  std::uint64_t done = 0;    // RDMA_DONE
  // Sends without RPC-over-RDMA header on a connection that carries it.
  std::uint64_t malformed = 0;
  std::uint64_t without_segment = 0;  // bytes read or written outside the memory of open calls
};

class WEFT_API RpcTracker final : public TrafficSink {
 public:
  // `sink` must outlive this, and so must `connections`, of the analysis that it is a sink of.
  // Without them no finding about an RPC is left out because its connection of iWARP was open
  // before the capture, and was recognised in one direction first.
  explicit RpcTracker(RpcSink& sink, const RpcLimits& limits = {},
                      const ConnectionTable* connections = nullptr);
  ~RpcTracker() override;

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_late(const Origin& origin, std::int64_t delay_ns) override;
  void on_end(const Origin& origin, bool reset) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override;
  // Ends the trace: reports calls without a reply.
  void finish();

  // Returns whether RPC-over-RDMA was recognised on the connection.
  [[nodiscard]] bool recognised(ConnectionId connection) const;
  // The sums of the trace so far, and those of one connection that was not forgotten.
  [[nodiscard]] const RpcCounts& counts() const;
  [[nodiscard]] RpcCounts counts(ConnectionId connection) const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
