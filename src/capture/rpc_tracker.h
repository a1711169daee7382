// RPCs over RDMA, out of the traffic of all connections: sends become headers, chunk lists
// segments, reads and writes their bytes, and each call meets its reply. Both sides of a connection
// may call (RFC 8167).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "capture/reassembly.h"
#include "capture/rpc.h"
#include "capture/rpc_findings.h"
#include "capture/send_assembly.h"
#include "capture/traffic.h"

namespace weft::capture {

struct RpcLimits {
  // Bytes of messages that are open at a time; more are dropped and marked so.
  std::uint64_t open_bytes = Reassembly::default_budget_bytes;
  // Calls of one side of one connection without a reply; the oldest is given up. Clients allow
  // themselves some hundred at most.
  std::size_t open_calls = 4096;
  // XIDs that were answered, remembered to tell a retransmission from a new call.
  std::size_t answered_calls = 4096;
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

class RpcTracker final : public TrafficSink {
 public:
  // `sink` must outlive this.
  explicit RpcTracker(RpcSink& sink, const RpcLimits& limits = {});
  ~RpcTracker() override;

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_end(const Origin& origin, bool reset) override;
  // The trace is at its end: calls without a reply are told.
  void finish();

  // Whether RPC-over-RDMA was recognised on the connection.
  [[nodiscard]] bool recognised(ConnectionId connection) const;
  [[nodiscard]] const RpcCounts& counts() const { return counts_; }
  [[nodiscard]] RpcCounts counts(ConnectionId connection) const;

 private:
  struct Call {
    Rpc rpc;
    CallNumber number = 0;
    std::uint64_t hash = 0;  // of the message and the shape of its lists
    std::size_t inline_bytes = 0;
    std::vector<ChunkLists> attempts;  // lists of retransmissions
    bool answered_before = false;      // the same call had its reply already
  };
  // What one side of a connection asks of the other.
  struct Caller {
    std::unordered_map<std::uint32_t, Call> open;
    std::deque<std::pair<std::uint32_t, CallNumber>> order;     // of opening; may name closed ones
    std::unordered_map<std::uint32_t, std::uint64_t> answered;  // XID to hash
    std::deque<std::uint32_t> answered_order;
    std::uint32_t largest_grant = 0;
    bool matched = false;  // a call has met its reply: what comes without is no late start
  };
  struct State;

  State& state(ConnectionId connection);
  void on_message(const Origin& origin, State& state, const SendAssembly::Message& message);
  void on_header(const Origin& origin, State& state, const SendAssembly::Message& message,
                 const wire::RpcRdmaView& view);
  std::optional<wire::RpcKind> kind_of(State& state, const Origin& origin,
                                       const RpcMessage& message, std::uint32_t xid,
                                       const Assembled& body);
  void on_call(const Origin& origin, State& state, RpcMessage message, std::uint32_t xid,
               const Assembled& body);
  void on_reply(const Origin& origin, State& state, RpcMessage message,
                const wire::RpcRdmaView& view, const Assembled& body);
  void retransmitted(State& state, Call& call, RpcMessage& message, Side side);
  void answer(State& state, Caller& caller, Call& call, RpcMessage message, const Assembled& body);
  void complete_call(State& state, Call& call, Side owner);
  void give_up(State& state, Caller& caller, std::uint32_t xid);
  void check_credits(const Rpc& rpc, const Caller& caller);
  void bound(State& state, Caller& caller);
  void end(ConnectionId connection, State& state);
  template <typename Count>
  void count(State& state, Count which);

  RpcSink* sink_;
  RpcLimits limits_;
  FindingReport report_;
  Reassembly memory_;
  Budget send_budget_;
  std::map<ConnectionId, std::unique_ptr<State>> connections_;
  CallNumber next_call_ = 1;
  RpcCounts counts_;
};

}  // namespace weft::capture
