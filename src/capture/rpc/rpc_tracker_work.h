// The implementation of RpcTracker and its state for each connection; only for RpcTracker's own
// files.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/findings/credit_watch.h"
#include "capture/findings/rpc_findings.h"
#include "capture/rpc/early_traffic.h"
#include "capture/rpc/rpc_checks.h"
#include "capture/rpc/send_assembly.h"
#include "capture/rpc/session_slots.h"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"

namespace weft::capture {

class RpcTracker::Work {
 public:
  Work(RpcSink& sink, const RpcLimits& limits, const ConnectionTable* table);

  void on_send(const Origin& origin, const SendPart& part);
  void on_write(const Origin& origin, const WritePart& part);
  void on_read_request(const Origin& origin, const ReadRequest& request);
  void on_read_part(const Origin& origin, const ReadPart& part);
  void on_gap(const Origin& origin, const Gap& gap);
  void on_late(const Origin& origin);
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
    std::optional<SessionSlot> slot;   // of NFS 4.1 and later
  };
  // The calls of one side of a connection.
  struct Caller {
    std::unordered_map<std::uint32_t, Call> open;
    std::deque<std::pair<std::uint32_t, CallNumber>> order;     // by age; may contain closed calls
    std::unordered_map<std::uint32_t, std::uint64_t> answered;  // hash of the call by XID
    std::deque<std::uint32_t> answered_order;
    // XIDs of the latest replies that were reported without a call.
    std::deque<std::uint32_t> replied_alone;
    std::uint32_t largest_grant = 0;
    std::uint32_t grant = 0;  // the last grant; 0: none was seen
    CreditWatch waits;
    std::optional<std::int64_t> idle_since_ns;  // since its last reply, while no call is open
    bool matched = false;  // a reply was matched, so the capture did not begin after all calls
  };
  // An RPC with its reply. A part of the call may come late.
  struct Answered {
    Call call;
    RpcMessage message;  // the reply; `body` is the part of it that came inline
    Assembled body;
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
  void on_reply(const Origin& origin, State& state, ReplyMessage reply);
  void on_reply_without_call(const Origin& origin, State& state, ReplyMessage reply);
  void retransmitted(State& state, Call& call, RpcMessage& message, Side side);
  void answer(State& state, Caller& caller, Call& call, ReplyMessage reply);
  void report_answered(State& state, Answered& answered);
  void write(const Origin& origin, State& state, const WritePart& part);
  void read_request(const Origin& origin, const ReadRequest& request);
  void read_part(const Origin& origin, State& state, const ReadPart& part);

  // Captures that are out of order.
  template <typename Part>
  bool keep_early(const Origin& origin, State& state, const Part& part);
  void handle_early(State& state, EarlyEvent& event);
  void replay_early(State& state, const Call& call);
  void drop_early(State& state, const std::function<bool(const EarlyEvent&)>& chosen);
  void drop_early_before_call(State& state, const Call& call);
  void drop_early_before_match(State& state, Side caller);
  bool may_settle(const Call& call);
  void settle(State& state, const std::function<bool(const Answered&)>& chosen);
  void settle_reused(State& state, Side owner, const ChunkLists& lists);
  void settle_call(State& state, CallNumber number);
  // Applies the limits to what waits.
  void watch_late(State& state, const Stamp& now);

  void complete_call(State& state, Call& call, Side owner);
  void give_up(State& state, Caller& caller, std::uint32_t xid);
  void note_waits(const State& state, Caller& caller, Call& call);
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

  // Returns whether FPDUs may have been found in one direction long before the other one.
  [[nodiscard]] bool was_searched(ConnectionId connection) const;
  // Returns whether the connection may have been open before the capture. After a handshake, what
  // is missing at the beginning was lost.
  [[nodiscard]] bool may_be_older(const State& state) const;
  // Returns whether that is so, and the call comes before both sides could be decoded.
  [[nodiscard]] bool is_before_both(const State& state, const Rpc& rpc) const;
  // Returns whether the capture of an older connection may begin between the packets of this call,
  // because these are not in their order.
  [[nodiscard]] bool may_begin_within(const State& state, const Rpc& rpc) const;
  // Returns whether the calls that seem open at this frame are those that were. A late packet has
  // moved replies or calls around it.
  [[nodiscard]] bool knows_open_calls(const State& state, const Stamp& now) const;

  RpcSink* sink_;
  RpcLimits limits_;
  const ConnectionTable* table_;  // nullptr: unknown
  FindingReport report_;
  Reassembly memory_;
  Budget send_budget_;
  Budget early_budget_;
  SessionSlots slots_;
  ConnectionMap<State> connections_;
  CallNumber next_call_ = 1;
  std::size_t open_calls_ = 0;  // of all callers, like the next two
  std::size_t charged_bytes_ = 0;
  std::size_t answered_ = 0;
  std::size_t settling_ = 0;
  std::int64_t latest_ns_ = 0;  // time of the latest packet
  bool finishing_ = false;      // the capture has ended
  RpcCounts counts_;
};

[[nodiscard]] constexpr std::size_t index_of(Side side) {
  return side == Side::a ? 0 : 1;
}

// The state of one connection.
struct RpcTracker::Work::State {
  State(ConnectionId connection, Budget& send_budget, Budget& early_budget)
      : id(connection),
        sends{SendAssembly(send_budget), SendAssembly(send_budget)},
        early(early_budget) {}

  ConnectionId id;
  bool recognised = false;
  // If it lacks anything, answered calls may seem open, and waits are not reported.
  CaptureLacks lacks;
  std::array<bool, 2> cut{};  // the snap length cut headers or messages of the side
  std::array<SendAssembly, 2> sends;
  std::array<Caller, 2> callers;
  std::array<bool, 2> ended{};
  // By sender: the last frame of a Read response whose request is unknown; 0: none.
  std::array<std::uint64_t, 2> unassigned_frame{};
  // By sender: the last frame at which bytes are missing or cannot be decoded; 0: none.
  std::array<std::uint64_t, 2> gap_frame{};
  // By sender: the first frame of which something was decoded, and whether bytes before it were
  // not. A connection that was open before the capture begins so.
  std::array<std::uint64_t, 2> first_frame{};
  std::array<bool, 2> begins_with_gap{};
  std::array<std::uint64_t, 2> latest_frame{};
  // By sender: its latest frame when the first RPC was recognised. Where FPDUs were found in its
  // stream earlier than in that of the caller, what it sent up to there was not kept for calls.
  std::array<std::uint64_t, 2> unkept_frame{};
  bool reordered = false;  // the capture has a packet of the connection later than it was sent
  std::uint64_t disorder_frame = 0;  // the last frame at which that was seen
  EarlyTraffic early;
  std::vector<Answered> settling;
  RpcCounts counts;

  Caller& caller(Side side) { return callers[index_of(side)]; }
  void see(const Origin& origin) {
    std::uint64_t& first = first_frame[index_of(origin.side)];
    if (first == 0) first = origin.stamp.frame;
    std::uint64_t& latest = latest_frame[index_of(origin.side)];
    latest = std::max(latest, origin.stamp.frame);
  }
  void note_disorder() {
    reordered = true;
    disorder_frame = std::max(latest_frame[0], latest_frame[1]);
  }
  // Returns whether the frame comes before both sides could be decoded.
  [[nodiscard]] bool is_before_both(std::uint64_t frame) const {
    const auto is_before = [&](std::size_t side) {
      return begins_with_gap[side] && (first_frame[side] == 0 || frame < first_frame[side]);
    };
    return is_before(0) || is_before(1);
  }
  // Returns the same for a call, to which the responder may have answered before RPCs were
  // recognised.
  [[nodiscard]] bool is_before_both(const Rpc& rpc) const {
    const std::uint64_t frame = rpc.call->first.frame;
    return is_before_both(frame) || frame < unkept_frame[index_of(other(rpc.caller))];
  }
};

template <typename Count>
void RpcTracker::Work::count(State& state, Count which) {
  ++(counts_.*which);
  ++(state.counts.*which);
}

}  // namespace weft::capture
