// The implementation of RpcTracker and its state for each connection; only for RpcTracker's own
// files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/findings/credit_watch.h"
#include "capture/findings/rpc_findings.h"
#include "capture/rpc/rpc_checks.h"
#include "capture/rpc/send_assembly.h"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"

namespace weft::capture {

class RpcTracker::Work {
 public:
  Work(RpcSink& sink, const RpcLimits& limits);

  void on_send(const Origin& origin, const SendPart& part);
  void on_write(const Origin& origin, const WritePart& part);
  void on_read_request(const Origin& origin, const ReadRequest& request);
  void on_read_part(const Origin& origin, const ReadPart& part);
  void on_gap(const Origin& origin, const Gap& gap);
  void on_end(const Origin& origin, bool reset);
  void close(ConnectionId connection);
  void forget(ConnectionId connection) { connections_.erase(connection); }
  void finish();
  [[nodiscard]] bool recognised(ConnectionId connection) const;
  [[nodiscard]] const RpcCounts& counts() const { return counts_; }
  [[nodiscard]] RpcCounts counts(ConnectionId connection) const;

 private:
  struct Call {
    Rpc rpc;
    CallNumber number = 0;
    std::uint64_t hash = 0;  // hash of the message and the form of its lists
    std::size_t inline_bytes = 0;
    std::size_t charged_bytes = 0;     // bytes charged to RpcLimits::call_bytes
    std::vector<ChunkLists> attempts;  // the chunk lists of the call and of its retransmissions
    bool answered_before = false;      // an equal call was answered before
  };
  // The calls of one side of a connection.
  struct Caller {
    std::unordered_map<std::uint32_t, Call> open;
    std::deque<std::pair<std::uint32_t, CallNumber>> order;     // by age; may contain closed calls
    std::unordered_map<std::uint32_t, std::uint64_t> answered;  // hash of the call by XID
    std::deque<std::uint32_t> answered_order;
    std::uint32_t largest_grant = 0;
    std::uint32_t grant = 0;  // the last grant; 0: none was seen
    CreditWatch waits;
    bool matched = false;  // a reply was matched, so the capture did not begin after all calls
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
  static bool none_left(const Caller& caller) {
    return caller.grant != 0 && caller.open.size() >= caller.grant;
  }
  void report_waits(ConnectionId connection, Side side, const Caller& caller);
  void charge(Call& call, const ChunkLists& lists);
  void close(Caller& caller, std::uint32_t xid);
  void give_up_oldest(State& state, Caller& caller);
  void forget_answered(Caller& caller);
  void bound(State& state, Caller& caller);
  void bound_all();
  void end(ConnectionId connection, State& state);
  template <typename Count>
  void count(State& state, Count which);

  RpcSink* sink_;
  RpcLimits limits_;
  FindingReport report_;
  Reassembly memory_;
  Budget send_budget_;
  ConnectionMap<State> connections_;
  CallNumber next_call_ = 1;
  std::size_t open_calls_ = 0;  // of all callers, like the next two
  std::size_t charged_bytes_ = 0;
  std::size_t answered_ = 0;
  RpcCounts counts_;
};

[[nodiscard]] constexpr std::size_t index_of(Side side) {
  return side == Side::a ? 0 : 1;
}

// The state of one connection.
struct RpcTracker::Work::State {
  State(ConnectionId connection, Budget& budget)
      : id(connection), sends{SendAssembly(budget), SendAssembly(budget)} {}

  ConnectionId id;
  bool recognised = false;
  // If it lacks anything, answered calls may seem open, and waits are not reported.
  CaptureLacks lacks;
  std::array<bool, 2> cut{};  // the snap length cut headers or messages of the side
  std::array<SendAssembly, 2> sends;
  std::array<Caller, 2> callers;
  std::array<bool, 2> ended{};
  RpcCounts counts;

  Caller& caller(Side side) { return callers[index_of(side)]; }
};

template <typename Count>
void RpcTracker::Work::count(State& state, Count which) {
  ++(counts_.*which);
  ++(state.counts.*which);
}

}  // namespace weft::capture
