#include "capture/ib_connection.h"

namespace weft::capture {
namespace {

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

}  // namespace

IbConnection::IbConnection(Shared& shared, Connection& connection)
    : shared_(shared),
      connection_(connection),
      path_{connection.mtu_bytes},
      a_(shared, origin(Side::a, {}), path_),
      b_(shared, origin(Side::b, {}), path_) {}

void IbConnection::count(const Stamp& stamp) {
  if (connection_.frames++ == 0) connection_.first = stamp;
  connection_.last = stamp;
}

bool IbConnection::plausible(Side side, const IbSegment& segment) const {
  const Half& requester = half(segment.is_answer() ? other(side) : side);
  return requester.order.near(segment.psn());
}

void IbConnection::on_packet(Side side, const IbSegment& segment) {
  count(segment.stamp);
  Origin from = origin(side, segment.stamp);
  from.position = segment.psn();
  if (segment.headers.bth.version != 0) {
    shared_.sink.on_violation(from, {.kind = Violation::Kind::bad_version,
                                     .found = segment.headers.bth.version,
                                     .expected = 0});
  }
  if (segment.is_answer())
    on_answer(from, segment);
  else
    half(side).order.add(segment);
  watch(segment.stamp);
  if (path_.mtu_bytes != 0) connection_.mtu_bytes = path_.mtu_bytes;
}

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

// §9.7.5.1.2: an answer acknowledges everything before it, and an ACK its own PSN too; a NAK or an
// RNR NAK is about its own.
void IbConnection::on_acknowledge(const Origin& origin, const IbSegment& segment) {
  Half& requester = half(other(origin.side));
  const wire::Aeth& aeth = segment.headers.aeth;
  const bool has_aeth = segment.operation() != wire::IbOperation::read_response_middle;
  const bool refuses = has_aeth && (aeth.kind() == wire::Aeth::Kind::nak ||
                                    aeth.kind() == wire::Aeth::Kind::rnr_nak);
  const std::uint32_t psn = refuses ? wire::psn_plus(segment.psn(), wire::psn_mask) : segment.psn();
  requester.order.acknowledge(psn);
  shared_.sink.on_acknowledge(origin, psn);
  if (!refuses) return;
  Refusal refusal{.psn = segment.psn()};
  if (aeth.kind() == wire::Aeth::Kind::rnr_nak) {
    refusal.kind = Refusal::Kind::receiver_not_ready;
    refusal.timer_ns = std::uint64_t{wire::rnr_timer_us(aeth.value())} * 1'000;
  } else {
    refusal.kind = kind_of(aeth.nak_code());
  }
  const bool again = refusal.kind == Refusal::Kind::receiver_not_ready ||
                     refusal.kind == Refusal::Kind::sequence_error;
  if (again)
    requester.order.asked_again(segment.psn());
  else
    connection_.end = Connection::End::terminated;
  shared_.sink.on_refusal(origin, refusal);
}

void IbConnection::watch(const Stamp& stamp) {
  for (const Side side : {Side::a, Side::b}) {
    Half& requester = half(side);
    requester.order.watch();
    requester.answers.watch(origin(other(side), stamp));
  }
}

void IbConnection::end(const Stamp& stamp, Connection::End end) {
  if (ended_) return;
  ended_ = true;
  if (connection_.end != Connection::End::terminated) connection_.end = end;
  finish();
  shared_.sink.on_end(origin(Side::a, stamp), false);
  shared_.sink.on_end(origin(Side::b, stamp), false);
}

void IbConnection::finish() {
  for (const Side side : {Side::a, Side::b}) {
    Half& requester = half(side);
    requester.order.finish();
    requester.answers.finish(origin(other(side), connection_.last));
  }
}

}  // namespace weft::capture
