// The part of RpcTracker that matches replies with calls.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/findings/open_end.h"
#include "capture/rpc/rpc_checks.h"
#include "capture/rpc/rpc_exchange.h"
#include "capture/rpc/rpc_tracker_work.h"
#include "capture/text/units.h"
#include "wire/rpc_rdma.h"

namespace weft::capture {
namespace {

using wire::RpcRdmaProcedure;

// A gap has the frame at which it begins. Up to this number of frames may follow before the next
// message of its side is recognised.
constexpr std::uint64_t most_gap_frames = 512;

// How many of the latest replies without a call are remembered for calls that come after them.
constexpr std::size_t most_replied_alone = 256;

// The FNV-1a hash of 64 bits.
class Hash {
 public:
  void add(Bytes bytes) {
    for (const std::byte byte : bytes) add_byte(static_cast<std::uint8_t>(byte));
  }
  void add(std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) add_byte(static_cast<std::uint8_t>(value >> shift));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  // The two constants are the prime and the offset basis that FNV defines for 64 bits.
  void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001B3U; }
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

// Returns a hash that is equal for a call and its retransmission, which may name other memory.
std::uint64_t hash_of(const Assembled& body, const ChunkLists& lists) {
  Hash hash;
  hash.add(body.bytes());
  // Handles and offsets are left out, because the caller may have registered its memory again.
  for (const auto& segment : lists.reads) {
    hash.add(segment.position);
    hash.add(segment.target.length);
  }
  return hash.value();
}

// The times of the first and of the last packet that transferred chunks of a call; 0 without any.
struct Transfer {
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
};

Transfer transfer_of(const ChunkLists& lists, SegmentTable& memory, CallNumber call) {
  Transfer all;
  const auto add = [&](const wire::RdmaSegment& target) {
    const Segment* const segment = memory.find(target, call);
    if (segment == nullptr || segment->traffic().first_ns == 0) return;
    const SegmentTraffic& traffic = segment->traffic();
    all.first_ns = all.first_ns == 0 ? traffic.first_ns : std::min(all.first_ns, traffic.first_ns);
    all.last_ns = std::max(all.last_ns, traffic.last_ns);
  };
  for (const auto& read : lists.reads) add(read.target);
  for (const Chunk& chunk : lists.writes) std::ranges::for_each(chunk, add);
  if (lists.reply) std::ranges::for_each(*lists.reply, add);
  return all;
}

constexpr CallNumber no_call = 0;  // for replies without a call: all their chunks are missing

// Moves the bytes of write chunks and reply chunk from the segments to the reply.
void take_chunks(RpcMessage& reply, SegmentTable& memory, CallNumber call) {
  ReplyChunks chunks = memory.reply_chunks(reply.lists, call);
  reply.chunks = std::move(chunks.writes);
  if (reply.procedure == RpcRdmaProcedure::nomsg && chunks.reply) {
    reply.message = std::move(*chunks.reply);
  }
}

}  // namespace

// Registers a call. A second call with the XID of an open one is a retransmission if its content is
// the same; otherwise the XID was reused, and the first call is given up.
void RpcTracker::Work::on_call(const Origin& origin, State& state, RpcMessage message,
                               std::uint32_t xid, const Assembled& body) {
  Caller& caller = state.caller(origin.side);
  const std::uint64_t hash = hash_of(body, message.lists);
  if (const auto open = caller.open.find(xid); open != caller.open.end()) {
    if (open->second.hash == hash) return retransmitted(state, open->second, message, origin.side);
    report_.add(
        {finding::xid_reused,
         origin.connection,
         fmt::format("XID 0x{:08x} is used for another call while the first has no reply.", xid),
         {open->second.rpc.call->first, message.first},
         xid});
    give_up(state, caller, xid);
  }
  Call& call = caller.open[xid];
  ++open_calls_;
  call.number = next_call_++;
  call.hash = hash;
  call.inline_bytes = body.size();
  const auto answered = caller.answered.find(xid);
  call.answered_before = answered != caller.answered.end() && answered->second == hash;
  call.attempts.push_back(message.lists);
  call.rpc.connection = origin.connection;
  call.rpc.caller = origin.side;
  call.rpc.xid = xid;
  call.rpc.call = std::move(message);
  call.rpc.call->message = body;
  decode_header(call.rpc);
  caller.order.emplace_back(xid, call.number);
  count(state, call.answered_before ? &RpcCounts::retransmissions : &RpcCounts::calls);
  if (call.answered_before) {
    report_.add(finding::retransmitted, call.rpc, "was sent again although its reply was sent");
  }

  settle_reused(state, origin.side, call.rpc.call->lists);
  drop_early_before_call(state, call);
  SegmentTable& memory = memory_.memory_of(origin.connection, origin.side);
  check_header(report_, call.rpc, *call.rpc.call, true, call.inline_bytes);
  // This searches the memory of other open calls, so it precedes process_call(), which adds the
  // segments of this one.
  check_call_chunks(report_, call.rpc, memory);
  // A reply that is late or lost makes an answered call seem open.
  if (!state.reordered && !state.lacks.packets) check_credits(call.rpc, caller);
  note_waits(state, caller, call);
  memory.process_call(call.rpc.call->lists, call.number);
  charge(call, call.rpc.call->lists);
  if (!state.early.empty()) replay_early(state, call);  // this may answer the call
  bound(state, caller);
  bound_all();
}

// Notes why the call did not come earlier, as far as the capture shows it.
void RpcTracker::Work::note_waits(const State& state, Caller& caller, Call& call) {
  Rpc& rpc = call.rpc;
  const Stamp& called = rpc.call->first;
  const LimitWait for_slot = slots_.on_call(rpc, state.lacks.anything, call.slot);
  const auto idle_since_ns = std::exchange(caller.idle_since_ns, {});
  if (!knows_open_calls(state, called)) return caller.waits.interrupt();
  if (idle_since_ns) rpc.idle_ns = std::max<std::int64_t>(0, called.time_ns - *idle_since_ns);
  const LimitWait for_credit = caller.waits.sent(called, none_left(caller));
  rpc.credits_ns = for_credit.ns();
  rpc.slots_ns = joined_ns(for_credit, for_slot) - rpc.credits_ns;
}

// RFC 8166 §3.3.1: checks the number of open calls. A grant may shrink while calls are under way,
// so the largest grant is the limit.
void RpcTracker::Work::check_credits(const Rpc& rpc, const Caller& caller) {
  if (caller.largest_grant == 0 || caller.open.size() <= caller.largest_grant) return;
  report_.add(
      finding::credits_exceeded, rpc,
      fmt::format("is the {} call without a reply, but no reply has granted more than {}",
                  ordinal_text(caller.open.size()), count_text(caller.largest_grant, "credit")));
}

// Reports how long a caller that had used all its credits may have waited (RFC 8166 §3.3); see
// CreditWatch.
void RpcTracker::Work::report_waits(ConnectionId connection, Side side, const Caller& caller) {
  const CreditWatch::Waits& waits = caller.waits.waits();
  if (waits.count == 0) return;
  report_.add(
      {finding::rpc_credit_stall, connection,
       fmt::format("The caller on side {} had as many calls under way as it was granted credits "
                   "({} at last), {}, and sent the next one when a reply had come: it waited up to "
                   "{} in all, up to {} at a time.",
                   side == Side::a ? "a" : "b", caller.grant, times_text(waits.count),
                   duration_text(waits.total_ns), duration_text(waits.longest_ns)),
       waits.stamps});
}

// Counts a retransmission. It may name other memory, so its chunk lists are registered as another
// attempt.
void RpcTracker::Work::retransmitted(State& state, Call& call, RpcMessage& message, Side side) {
  constexpr std::size_t most_attempts = 8;
  count(state, &RpcCounts::retransmissions);
  ++call.rpc.retransmissions;
  report_.add({finding::retransmitted,
               call.rpc.connection,
               fmt::format("{} (XID 0x{:08x}) was sent again {} ms after the first time.",
                           describe(call.rpc), call.rpc.xid,
                           (message.first.time_ns - call.rpc.call->first.time_ns) / 1'000'000),
               {call.rpc.call->first, message.first},
               call.rpc.xid});
  if (std::ranges::find(call.attempts, message.lists) != call.attempts.end()) return;
  if (call.attempts.size() == most_attempts) return;
  memory_.memory_of(call.rpc.connection, side).process_call(message.lists, call.number);
  call.attempts.push_back(message.lists);
  charge(call, message.lists);
}

// Matches a reply with its call. A reply without one waits for it, if the capture may be out of
// order.
void RpcTracker::Work::on_reply(const Origin& origin, State& state, ReplyMessage reply) {
  Caller& caller = state.caller(other(origin.side));
  caller.largest_grant = std::max(caller.largest_grant, reply.message.credits);
  // With 0 the account would report an endless wait.
  caller.grant = std::max(reply.message.credits, 1U);
  const auto open = caller.open.find(reply.xid);
  if (open != caller.open.end()) {
    if (!caller.matched) drop_early_before_match(state, other(origin.side));
    const Stamp replied = reply.message.first;
    const Call& call = open->second;
    if (call.slot) slots_.on_reply(call.rpc, *call.slot, reply.body, replied);
    answer(state, caller, open->second, std::move(reply));
    if (knows_open_calls(state, replied)) caller.waits.given(replied, none_left(caller));
    return;
  }
  if (!keep_early(origin, state, reply)) on_reply_without_call(origin, state, std::move(reply));
}

// Reports a reply without a call.
void RpcTracker::Work::on_reply_without_call(const Origin& origin, State& state,
                                             ReplyMessage message) {
  Rpc reply;
  reply.connection = origin.connection;
  reply.caller = other(origin.side);
  reply.xid = message.xid;
  reply.error = message.error;
  Caller& caller = state.caller(reply.caller);
  if (reply.error) count(state, &RpcCounts::errors);
  count(state, &RpcCounts::replies_without_call);
  const bool again = caller.answered.contains(reply.xid);
  // If the capture began in the middle, its first replies answer calls that it does not contain.
  if (caller.matched && !state.cut[index_of(reply.caller)]) {
    report_.add({finding::without_call,
                 origin.connection,
                 fmt::format("The reply with XID 0x{:08x} answers no call that was seen{}.",
                             reply.xid, again ? " since its first reply" : ""),
                 {message.message.first},
                 reply.xid});
  }
  if (again) return;
  caller.replied_alone.push_back(reply.xid);
  if (caller.replied_alone.size() > most_replied_alone) caller.replied_alone.pop_front();
  reply.reply = std::move(message.message);
  reply.reply->message = std::move(message.body);
  take_chunks(*reply.reply, memory_.memory_of(state.id, reply.caller), no_call);
  decode_exchange(reply);
  sink_->on_rpc(reply);
}

// Assembles the call from its inline bytes and the read chunks of the attempt with the memory
// that was read.
void RpcTracker::Work::complete_call(State& state, Call& call, Side owner) {
  if (call.attempts.back().reads.empty()) return;
  SegmentTable& memory = memory_.memory_of(state.id, owner);
  const Assembled body = call.rpc.call->message;
  for (const ChunkLists& attempt : call.attempts) {
    std::vector<ReadChunk> chunks = memory.read_chunks(attempt, call.number);
    Assembled base = body;
    if (!chunks.empty() && chunks.front().position == 0) {
      base = std::move(chunks.front().bytes);
      chunks.erase(chunks.begin());
    }
    Spliced spliced = splice(base, chunks);
    if (spliced.fault != SpliceFault::none) {
      report_.add(finding::position_beyond_message, call.rpc,
                  fmt::format("has a read chunk at position {}, {}", spliced.position,
                              spliced.fault == SpliceFault::position_beyond_end
                                  ? "where the message has no byte any more"
                                  : "which is inside of the chunk before it"));
    }
    call.rpc.call->message = std::move(spliced.message);
    call.rpc.call->lists = attempt;
    if (call.rpc.call->message.whole()) return;
  }
}

// Joins the reply with its call. The RPC is reported at once, or when the Reads of its chunks are
// complete: the capture may hold their responses late.
void RpcTracker::Work::answer(State& state, Caller& caller, Call& call, ReplyMessage reply) {
  call.rpc.error = reply.error;
  if (reply.error) count(state, &RpcCounts::errors);
  count(state, &RpcCounts::replies);
  Answered answered{std::move(call), std::move(reply.message), std::move(reply.body)};
  caller.open.erase(reply.xid);  // this destroys `call`
  if (caller.open.empty()) caller.idle_since_ns = answered.message.first.time_ns;
  --open_calls_;
  caller.matched = true;
  if (caller.answered.insert_or_assign(reply.xid, answered.call.hash).second) {
    caller.answered_order.push_back(reply.xid);
    ++answered_;
  }
  if (may_settle(answered.call)) {
    state.settling.push_back(std::move(answered));
    ++settling_;
  } else {
    report_answered(state, answered);
  }
  bound(state, caller);
  bound_all();
}

// Checks call and reply, reports the RPC, and frees its memory.
void RpcTracker::Work::report_answered(State& state, Answered& answered) {
  Call& call = answered.call;
  SegmentTable& memory = memory_.memory_of(state.id, call.rpc.caller);
  complete_call(state, call, call.rpc.caller);
  Rpc& rpc = call.rpc;
  rpc.latency_ns = answered.message.first.time_ns - rpc.call->first.time_ns;
  const Transfer transfer = transfer_of(rpc.call->lists, memory, call.number);
  rpc.transfer_from_ns = transfer.first_ns;
  rpc.transfer_ns = std::clamp<std::int64_t>(transfer.last_ns - transfer.first_ns, 0,
                                             std::max<std::int64_t>(rpc.latency_ns, 0));
  rpc.reply = std::move(answered.message);
  RpcMessage& reply = *rpc.reply;
  const std::size_t inline_bytes = answered.body.size();
  reply.message = std::move(answered.body);
  take_chunks(reply, memory, call.number);
  const ExchangeFaults faults = decode_exchange(rpc);
  if (rpc.error) {
    report_.add(finding::rdma_error, rpc,
                rpc.error->code == wire::RpcRdmaErrorCode::version
                    ? fmt::format("was refused: the responder speaks versions {} to {} of "
                                  "RPC-over-RDMA",
                                  rpc.error->version_low, rpc.error->version_high)
                    : std::string("was refused: its chunks or header could not be used"));
  } else {
    check_header(report_, rpc, reply, false, inline_bytes);
    check_reply_chunks(report_, rpc, memory, call.number);
  }
  CaptureLacks lacks = state.lacks;
  lacks.order = state.reordered;
  // Where the snap length cuts calls, nothing that comes before its call is kept for it.
  lacks.anything = lacks.anything || state.cut[0] || state.cut[1];
  lacks.requests = rpc.call->first.frame < state.unassigned_frame[index_of(rpc.caller)];
  CaptureLacks of_reads = lacks;
  if (may_begin_within(state, rpc)) of_reads.anything = of_reads.packets = true;
  check_read_traffic(report_, rpc, memory, call.number, of_reads);
  if (!is_before_both(state, rpc)) check_messages(report_, rpc, lacks);
  check_exchange(report_, rpc, faults);
  sink_->on_rpc(rpc);
  memory.remove_call(call.number);
  charged_bytes_ -= call.charged_bytes;
}

// Charges the memory of a call to RpcLimits::call_bytes.
void RpcTracker::Work::charge(Call& call, const ChunkLists& lists) {
  std::size_t segments = lists.reads.size() + (lists.reply ? lists.reply->size() : 0);
  for (const Chunk& chunk : lists.writes) segments += chunk.size();
  // An estimate that includes the bytes of map nodes and byte maps.
  constexpr std::size_t segment_bytes = 512;
  const std::size_t bytes = call.inline_bytes + segments * segment_bytes;
  call.charged_bytes += bytes;
  charged_bytes_ += bytes;
}

// Removes a call that must be open. Its entry in `order` stays; give_up_oldest() and bound()
// recognise it by the number of the call.
void RpcTracker::Work::close(Caller& caller, std::uint32_t xid) {
  const auto found = caller.open.find(xid);
  charged_bytes_ -= found->second.charged_bytes;
  --open_calls_;
  caller.open.erase(found);
}

// Applies the limits over all connections: each connection gives up the older half of its calls, or
// forgets the older half of its XIDs. What waits for late packets is given up first.
void RpcTracker::Work::bound_all() {
  while (open_calls_ > limits_.open_calls_in_all || charged_bytes_ > limits_.call_bytes) {
    for (auto& [connection, state] : connections_) {
      settle(state, [](const Answered&) { return true; });
      for (Caller& caller : state.callers) {
        // A caller with a single call gives it up as well, so each turn of the outer loop makes
        // progress.
        for (std::size_t left = caller.open.size() / 2; caller.open.size() > left;) {
          give_up_oldest(state, caller);
        }
      }
    }
  }
  if (answered_ <= limits_.answered_in_all) return;
  for (auto& [connection, state] : connections_) {
    for (Caller& caller : state.callers) {
      for (std::size_t left = caller.answered.size() / 2; caller.answered.size() > left;) {
        forget_answered(caller);
      }
    }
  }
}

// The list of calls may name calls that were closed, or reopened with the same XID; those are
// skipped.
void RpcTracker::Work::give_up_oldest(State& state, Caller& caller) {
  const auto [xid, number] = caller.order.front();
  caller.order.pop_front();
  const auto open = caller.open.find(xid);
  if (open != caller.open.end() && open->second.number == number) give_up(state, caller, xid);
}

void RpcTracker::Work::forget_answered(Caller& caller) {
  caller.answered.erase(caller.answered_order.front());
  caller.answered_order.pop_front();
  --answered_;
}

// Reports a call without a reply. A retransmission of an answered call is not reported as
// unanswered.
void RpcTracker::Work::give_up(State& state, Caller& caller, std::uint32_t xid) {
  const auto found = caller.open.find(xid);
  Call& call = found->second;
  if (call.slot) slots_.give_up(*call.slot);
  complete_call(state, call, call.rpc.caller);
  decode_exchange(call.rpc);
  if (!call.answered_before) {
    count(state, &RpcCounts::unanswered);
    // The reply may be one that the snap length cut.
    const Side responder = other(call.rpc.caller);
    // So may one that comes after the capture, unless the capture lacks packets before its end.
    const bool may_come = finishing_ && !state.lacks.packets &&
                          may_be_answered_later(call.rpc.call->first.time_ns, latest_ns_);
    // Or it was reported before the call, because the direction of the caller was recognised late.
    const bool came = std::ranges::find(caller.replied_alone, xid) != caller.replied_alone.end();
    const bool is_before = is_before_both(state, call.rpc);
    if (!state.cut[index_of(responder)] && !may_come && !came && !is_before) {
      const std::uint64_t gap_frame = state.gap_frame[index_of(responder)];
      const bool hidden =
          gap_frame != 0 && gap_frame + most_gap_frames >= call.rpc.call->first.frame;
      report_.add(finding::unanswered, call.rpc,
                  hidden
                      ? "has no reply, or it is among bytes that are missing or cannot be decoded"
                      : "has no reply");
    }
  }
  sink_->on_rpc(call.rpc);
  memory_.memory_of(state.id, call.rpc.caller).remove_call(call.number);
  close(caller, xid);
}

// Applies the limits of one caller.
void RpcTracker::Work::bound(State& state, Caller& caller) {
  while (caller.answered_order.size() > limits_.answered_calls) forget_answered(caller);
  while (!caller.order.empty()) {
    const auto [xid, number] = caller.order.front();
    const auto open = caller.open.find(xid);
    const bool closed = open == caller.open.end() || open->second.number != number;
    if (!closed && caller.open.size() <= limits_.open_calls) break;
    caller.order.pop_front();
    if (!closed) give_up(state, caller, xid);
  }
  // Closed calls stay in the list behind one that stays open, so they are removed when they are too
  // many.
  if (caller.order.size() < 2 * limits_.open_calls) return;
  std::erase_if(caller.order, [&](const auto& entry) {
    const auto open = caller.open.find(entry.first);
    return open == caller.open.end() || open->second.number != entry.second;
  });
}

}  // namespace weft::capture
