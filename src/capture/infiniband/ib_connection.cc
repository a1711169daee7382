#include "capture/infiniband/ib_connection.h"

#include <algorithm>
#include <array>

namespace weft::capture {
namespace {

// No network holds a packet back for so long.
constexpr std::int64_t longest_disorder_ns = 100'000'000;

Refusal::Kind kind_of(wire::Aeth::Nak code) {
  switch (code) {
    case wire::Aeth::Nak::psn_sequence_error:
      return Refusal::Kind::sequence_error;
    case wire::Aeth::Nak::remote_access_error:
      return Refusal::Kind::access_error;
    case wire::Aeth::Nak::remote_operational_error:
      return Refusal::Kind::operational_error;
    case wire::Aeth::Nak::invalid_rd_request:
      return Refusal::Kind::invalid_rd_request;
    case wire::Aeth::Nak::invalid_request:
    default:
      return Refusal::Kind::invalid_request;
  }
}

// Middle packets of a Read response have no AETH, so their field must not be read.
bool refuses(const IbSegment& segment) {
  const bool has_aeth = segment.operation() != wire::IbOperation::read_response_middle;
  const auto kind = segment.headers.aeth.kind();
  return has_aeth && (kind == wire::Aeth::Kind::nak || kind == wire::Aeth::Kind::rnr_nak);
}

// Returns whether the payload of such a packet has the path MTU (§9.5.2).
bool is_full(wire::IbOperation operation) {
  using Operation = wire::IbOperation;
  return operation == Operation::send_first || operation == Operation::send_middle ||
         operation == Operation::write_first || operation == Operation::write_middle ||
         operation == Operation::read_response_first ||
         operation == Operation::read_response_middle;
}

// §9.7.5.1.2: a response acknowledges everything before it. An ACK includes its own PSN; a NAK or
// RNR NAK refuses it.
std::uint32_t acknowledged_by(const IbSegment& segment) {
  return refuses(segment) ? wire::psn_plus(segment.psn(), wire::psn_mask) : segment.psn();
}

// Returns whether the refusal makes the requester repeat the request, so that the connection goes
// on.
bool requests_retransmission(const IbSegment& segment) {
  const wire::Aeth& aeth = segment.headers.aeth;
  return refuses(segment) && (aeth.kind() == wire::Aeth::Kind::rnr_nak ||
                              aeth.nak_code() == wire::Aeth::Nak::psn_sequence_error);
}

}  // namespace

IbConnection::IbConnection(Shared& shared, Connection& connection)
    : shared_(shared),
      connection_(connection),
      path_{connection.mtu_bytes},
      a_(shared, origin(Side::a, {}), path_),
      b_(shared, origin(Side::b, {}), path_) {
  if (connection.transport != Transport::uc) return;
  a_.order.set_unreliable();
  b_.order.set_unreliable();
}

IbConnection::~IbConnection() {
  for (const Half* one : {&a_, &b_}) {
    for (const HeldIbSegment& segment : one->delayed) shared_.budget.give_back(segment.bytes());
  }
}

void IbConnection::count(const Stamp& stamp) {
  if (connection_.frames++ == 0) connection_.first = stamp;
  connection_.last = stamp;
}

bool IbConnection::plausible(Side side, const IbSegment& segment) {
  Half& requester = half(segment.is_answer() ? other(side) : side);
  return requester.order.near(segment.psn()) || requester.answers.awaits(segment.psn());
}

// The first request comes again although everything was acknowledged: either the requester has
// received none of these acknowledgements, or another connection has begun. The message sequence
// number of the responder decides. It counts the messages of a connection, and starts again with
// another one. Where the connection manager's messages were captured, they show the beginning.
IbConnection::Restart IbConnection::restart(Side side, const IbSegment& segment) {
  if (segment.is_answer()) {
    Half& requester = half(other(side));
    if (!segment.headers.layout().aeth || refuses(segment)) {
      return restarting_ ? Restart::perhaps : Restart::no;
    }
    const std::uint32_t msn = segment.headers.aeth.msn;
    const bool fallen = requester.msn && wire::psn_distance(*requester.msn, msn) < 0;
    if (restarting_ == other(side)) {
      restarting_.reset();
      if (fallen) return Restart::yes;
    }
    if (!fallen) requester.msn = msn;
    return restarting_ ? Restart::perhaps : Restart::no;
  }
  if (restarting_) return Restart::perhaps;
  const Half& requester = half(side);
  const bool silent = segment.stamp.time_ns - connection_.last.time_ns >= longest_disorder_ns;
  if (connection_.beginning != Connection::Beginning::traffic || !silent || !requester.msn ||
      !requester.order.begins_with(segment.psn()) || !requester.order.covers(segment.psn())) {
    return Restart::no;
  }
  watch(segment.stamp);  // the first requests may have waited for a time only
  if (waits()) return Restart::no;
  restarting_ = side;
  return Restart::perhaps;
}

// Adds a packet, then processes what became ready and applies the timeouts.
void IbConnection::on_packet(Side side, const IbSegment& segment) {
  count(segment.stamp);
  ++connection_.side_frames[side == Side::a ? 0 : 1];
  // Also from packets that wait: the requests that they wait for may need it.
  path_.learn(segment.payload_wire_bytes, is_full(segment.operation()));
  if (!delay(side, segment)) process(side, segment);
  catch_up();
  watch(segment.stamp);
  if (path_.mtu_bytes() != 0) connection_.mtu_bytes = path_.mtu_bytes();
  if (ending_ && !waits()) finish_end();
}

// Stores a packet of this side while requests of the other side wait for a missing one, or a
// response while its request may be among those that are stored here. Returns false if it may be
// processed now.
bool IbConnection::delay(Side side, const IbSegment& segment) {
  Half& own = half(side);
  Half& peer = half(other(side));
  const bool before_request = segment.is_answer() && !peer.delayed.empty();
  if (own.delayed.empty() && !peer.order.blocked() && !before_request) return false;
  HeldIbSegment held(segment);
  if (!shared_.budget.take(held.bytes())) return false;
  own.delayed.push_back(std::move(held));
  // Only the acknowledgement is used at once, because it shows whether the missing packet was
  // received.
  if (segment.is_answer()) peer.order.acknowledge(acknowledged_by(segment));
  if (segment.is_answer() && requests_retransmission(segment))
    peer.order.on_retransmission_requested(segment.psn());
  return true;
}

// Returns whether the first delayed packet of a side may be processed: no request of the peer is
// missing, and what the peer sent before it was processed, because a response may refer to it.
bool IbConnection::may_pass(Half& own, Half& peer) {
  const IbSegment first = own.delayed.front().get();
  const auto is_before = [&](std::optional<std::uint64_t> frame) {
    return frame && *frame < first.stamp.frame;
  };
  if (peer.order.blocked() || is_before(peer.order.ready())) return false;
  return !first.is_answer() || peer.delayed.empty() ||
         !is_before(peer.delayed.front().get().stamp.frame);
}

// Passes on the waiting packet with the lowest frame number, so that both sides stay in the order
// of the capture. Returns false if nothing before `before_frame` may be passed on.
bool IbConnection::pass_on_earliest(std::uint64_t before_frame) {
  std::uint64_t earliest = before_frame;
  Half* chosen = nullptr;
  Side sender = Side::a;
  bool delayed = false;
  for (const Side side : {Side::a, Side::b}) {
    Half& own = half(side);
    const auto take = [&](std::uint64_t frame, bool is_delayed) {
      if (frame > earliest) return;
      earliest = frame;
      chosen = &own;
      sender = side;
      delayed = is_delayed;
    };
    IbOrder& peer = half(other(side)).order;
    const auto frame = own.order.ready();
    if (frame && !peer.blocked_before(*frame)) take(*frame, false);
    if (!own.delayed.empty() && may_pass(own, half(other(side)))) {
      take(own.delayed.front().get().stamp.frame, true);
    }
  }
  if (!chosen) return false;
  if (!delayed) {
    chosen->order.pass_on_ready();
    return true;
  }
  const HeldIbSegment segment = std::move(chosen->delayed.front());
  chosen->delayed.pop_front();
  shared_.budget.give_back(segment.bytes());
  process(sender, segment.get());
  return true;
}

// If a side waits for a missing request, that may be among its delayed packets, which wait for the
// other side. Puts the earliest delayed request of such a side into its order. Returns false if
// there is none. Delayed responses stay, because they must not come before their requests, and
// repetitions, because they must not come before what they repeat.
bool IbConnection::resolve_mutual_wait() {
  const auto first_request = [](Half& own) {
    return std::ranges::find_if(own.delayed, [&](const auto& held) {
      return !held.get().is_answer() && !own.order.stores(held.get());
    });
  };
  const auto of_a = first_request(a_);
  const auto of_b = first_request(b_);
  const bool has_a = a_.order.blocked() && of_a != a_.delayed.end();
  const bool has_b = b_.order.blocked() && of_b != b_.delayed.end();
  if (!has_a && !has_b) return false;
  const bool takes_a = has_a && (!has_b || of_a->get().stamp.frame < of_b->get().stamp.frame);
  const HeldIbSegment segment = std::move(takes_a ? *of_a : *of_b);
  if (takes_a)
    a_.delayed.erase(of_a);
  else
    b_.delayed.erase(of_b);
  shared_.budget.give_back(segment.bytes());
  process(takes_a ? Side::a : Side::b, segment.get());
  return true;
}

void IbConnection::catch_up() {
  while (pass_on_earliest(~std::uint64_t{0}) || resolve_mutual_wait()) {
  }
}

// Checks the form of a packet; requests go to the order of this side, responses to the requester's
// side.
void IbConnection::process(Side side, const IbSegment& segment) {
  Origin from = origin(side, segment.stamp);
  from.position = segment.psn();
  if (segment.headers.bth.version != 0) {
    shared_.sink.on_violation(from, {.kind = Violation::Kind::bad_version,
                                     .found = segment.headers.bth.version,
                                     .expected = 0});
  }
  if (const auto broken = broken_form(segment)) shared_.sink.on_violation(from, *broken);
  if (segment.is_answer()) return on_answer(from, segment);
  IbOrder& order = half(side).order;
  if (order.close_origin_before(segment)) {
    while (pass_on_earliest(segment.stamp.frame)) {
    }
  }
  order.add(segment);
}

// Passes a response on. Whether its request is still to come or has ended depends on the
// requester's order.
void IbConnection::on_answer(const Origin& origin, const IbSegment& segment) {
  Half& requester = half(other(origin.side));
  if (segment.operation() != wire::IbOperation::acknowledge) {
    const std::uint32_t psn = segment.psn();
    const bool seen_all = !requester.requests.lost_any() && requester.order.covers(psn) &&
                          requester.order.passed(psn);
    const bool may_come = !requester.order.begun() || requester.order.waiting() ||
                          (!requester.order.passed(psn) && requester.order.near(psn));
    requester.answers.add(origin, segment, may_come, seen_all);
  }
  on_acknowledge(origin, segment);
}

// Reports acknowledgements, credits and refusals. A refusal that is not repaired by a repetition
// terminates the connection.
void IbConnection::on_acknowledge(const Origin& origin, const IbSegment& segment) {
  Half& requester = half(other(origin.side));
  const wire::Aeth& aeth = segment.headers.aeth;
  requester.order.acknowledge(acknowledged_by(segment));
  shared_.sink.on_acknowledge(origin, acknowledged_by(segment));
  if (segment.operation() == wire::IbOperation::acknowledge && aeth.credits()) {
    shared_.sink.on_credits(origin, {.psn = segment.psn(), .credits = *aeth.credits()});
  }
  if (!refuses(segment)) return;
  Refusal refusal{.psn = segment.psn()};
  if (aeth.kind() == wire::Aeth::Kind::rnr_nak) {
    refusal.kind = Refusal::Kind::receiver_not_ready;
    refusal.timer_ns = std::uint64_t{wire::rnr_timer_us(aeth.value())} * 1'000;
  } else {
    refusal.kind = kind_of(aeth.nak_code());
  }
  if (requests_retransmission(segment))
    requester.order.on_retransmission_requested(segment.psn());
  else
    connection_.end = Connection::End::terminated;
  shared_.sink.on_refusal(origin, refusal);
}

void IbConnection::watch(const Stamp& stamp) {
  for (const Side side : {Side::a, Side::b}) {
    Half& requester = half(side);
    requester.order.watch(stamp.time_ns);
    catch_up();
    requester.answers.watch(origin(other(side), stamp));
  }
}

// Ends the connection once. A fatal NAK before keeps its reason.
void IbConnection::end(const Stamp& stamp, Connection::End end) {
  if (ended_) return;
  ended_ = true;
  ending_ = stamp;
  if (connection_.end != Connection::End::terminated) connection_.end = end;
  if (!waits()) finish_end();
}

// A message that has begun lacks packets until its last one has come. After a fatal NAK messages do
// not go on, and open requests have no response.
bool IbConnection::waits() const {
  const bool may_answer = connection_.end != Connection::End::terminated;
  return std::ranges::any_of(std::array{&a_, &b_}, [&](const Half* one) {
    return one->order.waits() || (may_answer && one->answers.waits()) || !one->delayed.empty() ||
           (may_answer && one->requests.within_message());
  });
}

void IbConnection::finish_end() {
  const Stamp stamp = *ending_;
  ending_.reset();
  finish_halves();
  shared_.sink.on_end(origin(Side::a, stamp), false);
  shared_.sink.on_end(origin(Side::b, stamp), false);
}

void IbConnection::finish() {
  if (ending_) return finish_end();
  finish_halves();
}

void IbConnection::finish_halves() {
  // Each direction stops waiting; the packets that are passed on may make the other direction wait
  // again.
  catch_up();
  while (a_.order.blocked() || b_.order.blocked()) {
    (a_.order.blocked() ? a_ : b_).order.give_up();
    catch_up();
  }
  for (const Side side : {Side::a, Side::b}) {
    Half& requester = half(side);
    requester.order.finish();
    requester.answers.finish(origin(other(side), connection_.last));
  }
  if (path_.mtu_bytes() != 0) connection_.mtu_bytes = path_.mtu_bytes();
}

}  // namespace weft::capture
