// The part of RpcTracker for captures that are out of order. Packets of InfiniBand show the order
// of one direction only. So a capture may hold the reply before the last Read response of its RPC,
// or a call after what the other side did for it.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "capture/rpc/rpc_tracker_work.h"

namespace weft::capture {
namespace {

bool is_later(const Stamp& now, const Stamp& since, std::uint64_t frames) {
  return now.frame > since.frame && now.frame - since.frame > frames;
}

template <typename Visitor>
void for_each_segment(const ChunkLists& lists, const Visitor& visit) {
  for (const wire::ReadSegment& segment : lists.reads) visit(segment.target);
  for (const Chunk& chunk : lists.writes) std::ranges::for_each(chunk, visit);
  if (lists.reply) std::ranges::for_each(*lists.reply, visit);
}

bool names(const ChunkLists& lists, std::uint32_t handle) {
  bool found = false;
  for_each_segment(lists, [&](const auto& segment) { found = found || segment.handle == handle; });
  return found;
}

EarlyEvent event_of(const Origin& origin, const WritePart& part) {
  EarlyEvent event{origin, part, {part.bytes.begin(), part.bytes.end()}};
  std::get<WritePart>(event.what).bytes = {};
  return event;
}
EarlyEvent event_of(const Origin& origin, const ReadPart& part) {
  EarlyEvent event{origin, part, {part.bytes.begin(), part.bytes.end()}};
  std::get<ReadPart>(event.what).bytes = {};
  return event;
}
EarlyEvent event_of(const Origin& origin, const ReadRequest& request) {
  return {origin, request, {}};
}
EarlyEvent event_of(const Origin& origin, const ReplyMessage& reply) {
  return {origin, reply, {}};
}

// The memory that an event names; replies name none.
std::optional<std::uint32_t> handle_of(const EarlyEvent& event) {
  return std::visit(
      [](const auto& part) -> std::optional<std::uint32_t> {
        if constexpr (requires { part.key; }) return part.key;
        return {};
      },
      event.what);
}

// Returns whether the event is about memory that one of the lists names.
bool names_memory_of(const EarlyEvent& event, const std::vector<ChunkLists>& attempts) {
  const auto handle = handle_of(event);
  return handle && std::ranges::any_of(
                       attempts, [&](const ChunkLists& lists) { return names(lists, *handle); });
}

}  // namespace

// --- What comes before its call ------------------------------------------------------------------

// Keeps traffic for memory that no call has named, or a reply to no call. Returns false if it
// belongs to a known call, or if its call cannot come any more.
template <typename Part>
bool RpcTracker::Work::keep_early(const Origin& origin, State& state, const Part& part) {
  const Side caller = std::is_same_v<Part, ReadPart> ? origin.side : other(origin.side);
  if constexpr (std::is_same_v<Part, ReplyMessage>) {
    if (state.caller(caller).answered.contains(part.xid)) return false;
  } else {
    if (memory_.memory_of(origin.connection, caller).find(part.key) != nullptr) return false;
  }
  // A snap length that cuts calls hides their memory.
  if (state.cut[index_of(caller)]) return false;
  return state.early.add(event_of(origin, part));
}

template bool RpcTracker::Work::keep_early(const Origin&, State&, const WritePart&);
template bool RpcTracker::Work::keep_early(const Origin&, State&, const ReadRequest&);
template bool RpcTracker::Work::keep_early(const Origin&, State&, const ReadPart&);
template bool RpcTracker::Work::keep_early(const Origin&, State&, const ReplyMessage&);

// Handles an event as if it had come now.
void RpcTracker::Work::handle_early(State& state, EarlyEvent& event) {
  const Origin& origin = event.origin;
  if (auto* const write = std::get_if<WritePart>(&event.what)) {
    write->bytes = event.bytes;
    this->write(origin, state, *write);
  } else if (auto* const part = std::get_if<ReadPart>(&event.what)) {
    part->bytes = event.bytes;
    read_part(origin, state, *part);
  } else if (const auto* const request = std::get_if<ReadRequest>(&event.what)) {
    read_request(origin, *request);
  } else if (auto* const reply = std::get_if<ReplyMessage>(&event.what)) {
    Caller& caller = state.caller(other(origin.side));
    if (caller.open.contains(reply->xid))
      on_reply(origin, state, std::move(*reply));
    else
      on_reply_without_call(origin, state, std::move(*reply));
  }
}

// Handles what was captured before a call but does not belong to it. `call` is not in the memory
// yet.
void RpcTracker::Work::drop_early_before_call(State& state, const Call& call) {
  Caller& caller = state.caller(call.rpc.caller);
  if (caller.matched || state.early.empty()) return;
  const auto& events = state.early.events();
  const auto own = std::ranges::find_if(events, [&](const EarlyEvent& event) {
    return event.caller() == call.rpc.caller && event.reply() && event.reply()->xid == call.rpc.xid;
  });
  const bool answered = own != events.end();
  // What comes before the reply to another call may belong to a call before the capture, which may
  // have named the same memory (drop_early_before_match()). While no reply was matched, the calls
  // to the replies may be late themselves, so only the memory of this call is in doubt.
  auto first = own;
  while (first != events.begin() && !std::prev(first)->reply()) --first;
  auto older = static_cast<std::size_t>(first - events.begin());
  drop_early(state, [&](const EarlyEvent& event) {
    if (older == 0) return false;
    --older;
    return event.caller() == call.rpc.caller && (answered || names_memory_of(event, call.attempts));
  });
  caller.matched = answered;
}

// Handles what was captured before this call. The reply may be among it, so the call may be closed
// when this returns.
void RpcTracker::Work::replay_early(State& state, const Call& call) {
  const Side caller = call.rpc.caller;
  const std::uint32_t xid = call.rpc.xid;
  const ChunkLists lists = call.rpc.call->lists;
  const auto belongs = [&](const EarlyEvent& event) {
    if (event.caller() != caller) return false;
    if (const ReplyMessage* const reply = event.reply()) return reply->xid == xid;
    const auto handle = handle_of(event);
    return handle && names(lists, *handle);
  };
  if (std::ranges::none_of(state.early.events(), belongs)) return;
  std::vector<EarlyEvent> events = state.early.take(belongs);
  if (!events.empty()) state.note_disorder();
  for (EarlyEvent& event : events) handle_early(state, event);
}

// Handles events whose call will not come.
void RpcTracker::Work::drop_early(State& state,
                                  const std::function<bool(const EarlyEvent&)>& chosen) {
  if (state.early.empty()) return;
  std::vector<EarlyEvent> events = state.early.take(chosen);
  for (EarlyEvent& event : events) handle_early(state, event);
}

// A capture that begins in the middle of a connection has traffic and replies of calls before it.
// None of them comes after the first reply that has its call: a later call may name the memory of
// the earlier ones.
void RpcTracker::Work::drop_early_before_match(State& state, Side caller) {
  drop_early(state, [&](const EarlyEvent& event) { return event.caller() == caller; });
}

// --- What comes after its reply ------------------------------------------------------------------

// Returns whether a Read of the call's memory was asked for, and its response is not complete.
bool RpcTracker::Work::may_settle(const Call& call) {
  if (call.rpc.error) return false;
  SegmentTable& memory = memory_.memory_of(call.rpc.connection, call.rpc.caller);
  bool under_way = false;
  for (const ChunkLists& attempt : call.attempts) {
    bool complete = !attempt.reads.empty();
    for (const wire::ReadSegment& read : attempt.reads) {
      const Segment* const segment = memory.find(read.target, call.number);
      if (segment != nullptr && segment->complete()) continue;
      complete = false;
      if (segment == nullptr) continue;
      const SegmentTraffic& traffic = segment->traffic();
      under_way = under_way || traffic.answered_bytes < traffic.read_bytes;
    }
    if (complete) return false;
  }
  return under_way;
}

// Reports those of the waiting RPCs for which `chosen` returns true.
void RpcTracker::Work::settle(State& state, const std::function<bool(const Answered&)>& chosen) {
  for (auto at = state.settling.begin(); at != state.settling.end();) {
    if (!chosen(*at)) {
      ++at;
      continue;
    }
    Answered answered = std::move(*at);
    at = state.settling.erase(at);
    --settling_;
    report_answered(state, answered);
  }
}

// A call that names the memory of a waiting RPC shows that the RPC has ended.
void RpcTracker::Work::settle_reused(State& state, Side owner, const ChunkLists& lists) {
  if (state.settling.empty()) return;
  settle(state, [&](const Answered& answered) {
    if (answered.call.rpc.caller != owner) return false;
    bool reused = false;
    for (const ChunkLists& attempt : answered.call.attempts) {
      for_each_segment(
          attempt, [&](const auto& segment) { reused = reused || names(lists, segment.handle); });
    }
    return reused;
  });
}

// Reports the RPC with this number if it is complete now.
void RpcTracker::Work::settle_call(State& state, CallNumber number) {
  settle(state, [&](const Answered& answered) {
    if (answered.call.number != number || may_settle(answered.call)) return false;
    state.note_disorder();
    return true;
  });
}

bool RpcTracker::Work::may_begin_within(const State& state, const Rpc& rpc) const {
  const auto [first, second] = std::minmax(state.first_frame[0], state.first_frame[1]);
  const std::uint64_t begin = first != 0 ? first : second;
  const bool ahead = rpc.transfer_from_ns != 0 && rpc.transfer_from_ns < rpc.call->first.time_ns;
  return (state.reordered || ahead) && may_be_older(state) &&
         rpc.call->first.frame <= begin + limits_.late_frames;
}

bool RpcTracker::Work::knows_open_calls(const State& state, const Stamp& now) const {
  return !state.lacks.anything &&
         (!state.reordered || now.frame > state.disorder_frame + limits_.late_frames);
}

void RpcTracker::Work::watch_late(State& state, const Stamp& now) {
  latest_ns_ = std::max(latest_ns_, now.time_ns);
  if (!state.early.empty() &&
      is_later(now, state.early.events().front().origin.stamp, limits_.late_frames)) {
    drop_early(state, [&](const EarlyEvent& event) {
      return is_later(now, event.origin.stamp, limits_.late_frames);
    });
  }
  if (state.settling.empty()) return;
  if (settling_ > limits_.settling_rpcs ||
      is_later(now, state.settling.front().message.first, limits_.late_frames)) {
    settle(state, [&](const Answered& answered) {
      return settling_ > limits_.settling_rpcs ||
             is_later(now, answered.message.first, limits_.late_frames);
    });
  }
}

}  // namespace weft::capture
