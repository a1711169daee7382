#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/rpc/rpc_recognition.h"
#include "capture/rpc/rpc_tracker_work.h"
#include "capture/text/units.h"
#include "wire/rpc.h"
#include "wire/rpc_rdma.h"

namespace weft::capture {
namespace {

using wire::RpcRdmaProcedure;

// Limit for incomplete Sends: enough for a thousand connections.
constexpr std::uint64_t open_send_bytes = 64U << 20;

// An RPC message begins with its XID and its direction (RFC 5531 §9).
constexpr std::uint64_t rpc_start_bytes = 8;

// Returns whether the snap length cut a part of the bytes off. A header that lacks these bytes is
// no fault of its sender.
bool is_cut(const Assembled& bytes) {
  return std::ranges::any_of(bytes.flaws(),
                             [](const FlawedRange& range) { return range.flaw == Flaw::cut; });
}

}  // namespace

RpcTracker::RpcTracker(RpcSink& sink, const RpcLimits& limits, const ConnectionTable* connections)
    : work_(std::make_unique<Work>(sink, limits, connections)) {}
RpcTracker::~RpcTracker() = default;

void RpcTracker::on_send(const Origin& origin, const SendPart& part) {
  work_->on_send(origin, part);
}

void RpcTracker::on_write(const Origin& origin, const WritePart& part) {
  work_->on_write(origin, part);
}

void RpcTracker::on_read_request(const Origin& origin, const ReadRequest& request) {
  work_->on_read_request(origin, request);
}

void RpcTracker::on_read_part(const Origin& origin, const ReadPart& part) {
  work_->on_read_part(origin, part);
}

void RpcTracker::on_gap(const Origin& origin, const Gap& gap) {
  work_->on_gap(origin, gap);
}

void RpcTracker::on_late(const Origin& origin, std::int64_t /*delay_ns*/) {
  work_->on_late(origin);
}

void RpcTracker::on_end(const Origin& origin, bool reset) {
  work_->on_end(origin, reset);
}

void RpcTracker::on_close(ConnectionId connection) {
  work_->close(connection);
}

void RpcTracker::on_forget(ConnectionId connection) {
  work_->forget(connection);
}

void RpcTracker::finish() {
  work_->finish();
}

bool RpcTracker::recognised(ConnectionId connection) const {
  return work_->recognised(connection);
}

const RpcCounts& RpcTracker::counts() const {
  return work_->counts();
}

RpcCounts RpcTracker::counts(ConnectionId connection) const {
  return work_->counts(connection);
}

RpcTracker::Work::Work(RpcSink& sink, const RpcLimits& limits, const ConnectionTable* table)
    : sink_(&sink),
      limits_(limits),
      table_(table),
      report_(sink),
      memory_(limits.open_bytes),
      send_budget_(open_send_bytes),
      early_budget_(limits.early_bytes) {}

RpcTracker::Work::State& RpcTracker::Work::state(ConnectionId connection) {
  return connections_.get(connection, connection, send_budget_, early_budget_);
}

bool RpcTracker::Work::recognised(ConnectionId connection) const {
  const State* known = connections_.find(connection);
  return known != nullptr && known->recognised;
}

RpcCounts RpcTracker::Work::counts(ConnectionId connection) const {
  const State* known = connections_.find(connection);
  return known == nullptr ? RpcCounts{} : known->counts;
}

// --- Traffic -------------------------------------------------------------------------------------

// Collects whole Sends. Until RPC-over-RDMA is recognised, only messages that begin like it are
// kept.
void RpcTracker::Work::on_send(const Origin& origin, const SendPart& part) {
  State& state = this->state(origin.connection);
  state.see(origin);
  watch_late(state, origin.stamp);
  state.sends[index_of(origin.side)].add(
      origin, part, [&](Bytes first) { return state.recognised || may_be_rpc_rdma(first); },
      [&](const SendAssembly::Message& message) { on_message(origin, state, message); });
}

// Places an RDMA Write in the memory of the other side's calls, and notes whether the Writes are
// contiguous.
void RpcTracker::Work::on_write(const Origin& origin, const WritePart& part) {
  State& state = this->state(origin.connection);
  state.see(origin);
  if (!state.recognised) return;
  watch_late(state, origin.stamp);
  if (!keep_early(origin, state, part)) write(origin, state, part);
}

void RpcTracker::Work::write(const Origin& origin, State& state, const WritePart& part) {
  SegmentTable& memory = memory_.memory_of(origin.connection, other(origin.side));
  const auto outcome =
      memory.place(part.key, part.address, part.bytes, part.lost ? 0 : part.missing_bytes);
  const std::uint64_t bytes = part.bytes.size() + part.missing_bytes;
  if (outcome.segment == nullptr) {
    counts_.without_segment += bytes;
    state.counts.without_segment += bytes;
  }
  if (outcome.segment == nullptr ? bytes != 0 && memory.find(part.key) != nullptr
                                 : outcome.placed.outside != 0) {
    report_.add({finding::outside_segment,
                 origin.connection,
                 fmt::format("RDMA Write of {} to handle 0x{:08x} at 0x{:x} leaves the "
                             "segment that the call has opened.",
                             count_text(bytes, "byte"), part.key, part.address),
                 {origin.stamp},
                 {},
                 {part.key}});
  }
  if (outcome.segment == nullptr) return;
  SegmentTraffic& traffic = outcome.segment->traffic();
  const std::uint64_t offset = part.address - outcome.segment->address();
  if (part.first) ++traffic.writes;
  if (offset != traffic.next_write) traffic.writes_discontinuous = true;
  traffic.next_write = offset + bytes;
  traffic.note(origin.stamp);
}

// Checks the range of an RDMA Read request. Its bytes are placed by on_read_part.
void RpcTracker::Work::on_read_request(const Origin& origin, const ReadRequest& request) {
  State& state = this->state(origin.connection);
  state.see(origin);
  if (!state.recognised || request.repeated || request.length == 0) return;
  watch_late(state, origin.stamp);
  if (!keep_early(origin, state, request)) read_request(origin, request);
}

void RpcTracker::Work::read_request(const Origin& origin, const ReadRequest& request) {
  SegmentTable& memory = memory_.memory_of(origin.connection, other(origin.side));
  Segment* segment = memory.find(request.key, request.address);
  const std::uint64_t offset = segment == nullptr ? 0 : request.address - segment->address();
  if (segment == nullptr ? memory.find(request.key) != nullptr
                         : request.length > segment->length() - offset) {
    report_.add({finding::outside_segment,
                 origin.connection,
                 fmt::format("RDMA Read of {} from handle 0x{:08x} at 0x{:x} leaves the "
                             "segment that the call has opened.",
                             count_text(request.length, "byte"), request.key, request.address),
                 {origin.stamp},
                 {},
                 {request.key}});
  }
  if (segment == nullptr) return;
  SegmentTraffic& traffic = segment->traffic();
  if (offset != traffic.next_read) traffic.reads_discontinuous = true;
  traffic.next_read = offset + request.length;
  traffic.read_bytes += request.length;
  traffic.note(origin.stamp);
}

// Places the bytes of a Read response in the responder's memory. The sender of a Read response owns
// the memory that is read.
void RpcTracker::Work::on_read_part(const Origin& origin, const ReadPart& part) {
  State& state = this->state(origin.connection);
  state.see(origin);
  if (!part.known) {
    state.unassigned_frame[index_of(origin.side)] = origin.stamp.frame;
    return;
  }
  if (!state.recognised) return;
  watch_late(state, origin.stamp);
  if (!keep_early(origin, state, part)) read_part(origin, state, part);
}

void RpcTracker::Work::read_part(const Origin& origin, State& state, const ReadPart& part) {
  const auto outcome =
      memory_.memory_of(origin.connection, origin.side)
          .place(part.key, part.address, part.bytes, part.lost ? 0 : part.missing_bytes);
  if (outcome.segment != nullptr) {
    outcome.segment->traffic().note(origin.stamp);
    outcome.segment->traffic().answered_bytes += part.bytes.size() + part.missing_bytes;
    if (!state.settling.empty()) settle_call(state, outcome.segment->description().call);
    return;
  }
  counts_.without_segment += part.bytes.size();
  state.counts.without_segment += part.bytes.size();
}

// A lost packet may contain a reply, so the number of open calls is not reliable any more. It may
// also contain the call that early traffic belongs to. A later call may name the same memory, so
// that traffic is not kept for it. A reply has its XID, so its call may still come.
void RpcTracker::Work::on_gap(const Origin& origin, const Gap& gap) {
  State& state = this->state(origin.connection);
  state.lacks.anything = true;
  drop_early(state, [&](const EarlyEvent& event) {
    return event.caller() == origin.side && event.reply() == nullptr;
  });
  if (gap.cut) {
    state.cut[index_of(origin.side)] = true;
  } else {
    state.lacks.packets = true;
    const std::size_t side = index_of(origin.side);
    if (state.first_frame[side] == 0) state.begins_with_gap[side] = true;
    std::uint64_t& frame = state.gap_frame[side];
    frame = std::max(frame, origin.stamp.frame);
  }
}

void RpcTracker::Work::on_late(const Origin& origin) {
  state(origin.connection).note_disorder();
}

// A connection has ended when both sides have closed it, or one has reset it.
void RpcTracker::Work::on_end(const Origin& origin, bool reset) {
  State* const known = connections_.find(origin.connection);
  if (known == nullptr) return;
  State& state = *known;
  state.ended[index_of(origin.side)] = true;
  if (reset || state.ended[index_of(other(origin.side))]) end(origin.connection, state);
}

void RpcTracker::Work::close(ConnectionId connection) {
  if (State* known = connections_.find(connection)) end(connection, *known);
  report_.close(connection);
}

void RpcTracker::Work::finish() {
  finishing_ = true;
  for (auto& [connection, state] : connections_) end(connection, state);
  report_.finish();
}

// Reports everything that is open, and frees the memory of the connection.
void RpcTracker::Work::end(ConnectionId connection, State& state) {
  for (const Side side : {Side::a, Side::b}) {
    Origin origin;
    origin.connection = connection;
    origin.side = side;
    state.sends[index_of(side)].finish(
        [&](const SendAssembly::Message& message) { on_message(origin, state, message); });
  }
  drop_early(state, [](const EarlyEvent&) { return true; });
  settle(state, [](const Answered&) { return true; });
  for (Caller& caller : state.callers) {
    while (!caller.order.empty()) give_up_oldest(state, caller);
  }
  // The waits are in the callers, so they are reported before the callers are cleared.
  for (const Side side : {Side::a, Side::b}) report_waits(connection, side, state.caller(side));
  for (Caller& caller : state.callers) {
    answered_ -= caller.answered.size();
    caller = {};
  }
  memory_.reset(connection);
}

bool RpcTracker::Work::was_searched(ConnectionId connection) const {
  const Connection* const known = table_ == nullptr ? nullptr : table_->find(connection);
  return known != nullptr && known->transport == Transport::iwarp &&
         known->beginning == Connection::Beginning::traffic;
}

bool RpcTracker::Work::may_be_older(const State& state) const {
  const Connection* const known = table_ == nullptr ? nullptr : table_->find(state.id);
  return known == nullptr || known->beginning == Connection::Beginning::traffic;
}

bool RpcTracker::Work::is_before_both(const State& state, const Rpc& rpc) const {
  return may_be_older(state) && state.is_before_both(rpc);
}

// --- Messages ------------------------------------------------------------------------------------

// Handles a whole Send: recognises the protocol, or reports a Send without an RPC-over-RDMA header
// on a connection that carries RPCs.
void RpcTracker::Work::on_message(const Origin& origin, State& state,
                                  const SendAssembly::Message& message) {
  const auto view = wire::RpcRdmaView::check(message.bytes);
  if (!state.recognised) {
    // One message decides for the rest of the connection, so a message with gaps proves nothing.
    if (!view || !message.whole || !proves_rpc_rdma(*view)) return;
    state.recognised = true;
    if (was_searched(origin.connection)) state.unkept_frame = state.latest_frame;
  }
  if (view && (message.assembled == nullptr || message.assembled->whole(0, view->size()))) {
    on_header(origin, state, message, *view);
    return;
  }
  if (message.assembled != nullptr && is_cut(*message.assembled)) {
    state.cut[index_of(origin.side)] = true;
    return;
  }
  // A packet that was not captured is no fault of the sender; on_gap has reported it.
  if (state.lacks.packets && !message.whole) return;
  count(state, &RpcCounts::malformed);
  report_.add({finding::malformed_header,
               origin.connection,
               fmt::format("A Send of {} on a connection that carries RPCs has no "
                           "RPC-over-RDMA header: {}.",
                           count_text(message.bytes.size(), "byte"),
                           view ? "bytes of it are missing" : wire::describe(view.error())),
               {message.first, message.last}});
}

// Returns whether an inline RPC message is a call or a reply; nothing if that is unknown.
std::optional<wire::RpcKind> RpcTracker::Work::kind_of(State& state, const Origin& origin,
                                                       const RpcMessage& message, std::uint32_t xid,
                                                       const Assembled& body) {
  const auto start = wire::RpcStart::parse(body.bytes());
  if (!body.whole(0, rpc_start_bytes) && state.caller(other(origin.side)).open.contains(xid)) {
    return wire::RpcKind::reply;  // unreadable, but a call with this XID is open
  }
  if (is_cut(body) && !body.whole(0, rpc_start_bytes)) {
    state.cut[index_of(origin.side)] = true;
    return {};
  }
  if (state.lacks.packets && !body.whole(0, rpc_start_bytes)) return {};
  if (!start || !body.whole(0, rpc_start_bytes)) {
    count(state, &RpcCounts::malformed);
    report_.add({finding::malformed_header,
                 origin.connection,
                 fmt::format("{} with XID 0x{:08x} is followed by no RPC message.",
                             wire::describe(message.procedure), xid),
                 {message.first},
                 xid});
    return {};
  }
  if (start->xid != xid) {
    report_.add({finding::xid_differs,
                 origin.connection,
                 fmt::format("The RPC-over-RDMA header has XID 0x{:08x}, the RPC message after it "
                             "0x{:08x}.",
                             xid, start->xid),
                 {message.first},
                 xid});
  }
  return start->kind;
}

// Decodes the header, and decides whether the message is a call or a reply.
void RpcTracker::Work::on_header(const Origin& origin, State& state,
                                 const SendAssembly::Message& whole,
                                 const wire::RpcRdmaView& view) {
  Assembled body = whole.assembled == nullptr
                       ? Assembled(view.body())
                       : whole.assembled->part(view.size(), whole.bytes.size());
  if (whole.tail_missing) body.set_open_end();
  RpcMessage message;
  message.first = whole.first;
  message.last = whole.last;
  message.credits = view.credits();
  message.procedure = view.procedure();
  message.lists = ChunkLists(view);
  const std::uint32_t xid = view.xid();
  const bool waited_for = state.caller(other(origin.side)).open.contains(xid);
  if (view.procedure() == RpcRdmaProcedure::done) return count(state, &RpcCounts::done);
  std::optional<wire::RpcKind> kind = wire::RpcKind::reply;
  if (view.procedure() == RpcRdmaProcedure::nomsg) {
    // RFC 8166 §3.5.3: a long call has read chunks, and a long reply has a reply chunk.
    const bool call = !message.lists.reads.empty() || (!message.lists.reply && !waited_for);
    if (call) kind = wire::RpcKind::call;
  } else if (view.procedure() != RpcRdmaProcedure::error) {
    kind = kind_of(state, origin, message, xid, body);
  }
  if (kind == wire::RpcKind::call) {
    on_call(origin, state, std::move(message), xid, body);
  } else if (kind == wire::RpcKind::reply) {
    ReplyMessage reply{.xid = xid, .error = {}, .message = std::move(message), .body = body};
    if (view.procedure() == RpcRdmaProcedure::error) reply.error = view.error();
    on_reply(origin, state, std::move(reply));
  }
}

}  // namespace weft::capture
