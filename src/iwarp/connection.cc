#include "iwarp/connection.h"

#include <algorithm>
#include <array>

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

bool is_send(RdmapOpcode opcode) {
  return opcode >= RdmapOpcode::send && opcode <= RdmapOpcode::send_solicited_invalidate;
}

bool is_immediate(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::immediate_data || opcode == RdmapOpcode::immediate_data_solicited;
}

bool belongs(RdmapOpcode opcode, std::uint32_t queue) {
  switch (queue) {
    case wire::queue::send:
      return is_send(opcode) || is_immediate(opcode);
    case wire::queue::request:
      return opcode == RdmapOpcode::read_request || opcode == RdmapOpcode::atomic_request;
    case wire::queue::terminate:
      return opcode == RdmapOpcode::terminate;
    case wire::queue::atomic_response:
      return opcode == RdmapOpcode::atomic_response;
    default:
      return false;
  }
}

wire::Terminate quote(wire::TerminateCode code, const Segment* segment) {
  wire::Terminate message{.code = code};
  if (!segment) return message;
  message.ddp_segment_bytes = segment->ulpdu_bytes();
  message.ddp_header_bytes = segment->header_bytes();
  message.ddp_header = segment->raw_header;
  return message;
}

}  // namespace

Connection::Connection(const Options& options, Host& host)
    : options_(options),
      host_(host),
      requester_(options.limits,
                 {.acknowledge = options.acknowledge && options.wire_ord > 0,
                  .ord = std::min(options.ord, options.wire_ord),
                  .wire_ord = options.wire_ord},
                 host, out_),
      responder_({.ird = options.ird}, host, out_),
      receiver_(host),
      deframer_({.crc = options.crc, .strict = options.crc && options.strict_crc}, *this),
      may_send_(options.initiator) {
  out_.configure(
      {.crc = options.crc, .markers = options.send_markers, .mulpdu_bytes = options.mulpdu_bytes});
  if (options.initiator) send_rtr();
}

// RFC 6581 §5.1: so that the responder may speak first. Revision 1 knows no such message, but an
// empty Write does no harm there either and has the same effect.
void Connection::send_rtr() {
  switch (options_.rtr) {
    case RtrKind::none:
      break;
    case RtrKind::read:
      requester_.build_probe();
      break;
    case RtrKind::write: {
      std::array<std::byte, wire::DdpTagged::header_bytes> bytes;
      wire::DdpTagged{.last = true, .rdmap_control = wire::rdmap_control(RdmapOpcode::write)}.emit(
          bytes);
      out_.add(bytes, {});
      break;
    }
    case RtrKind::send: {
      std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
      wire::DdpUntagged{.last = true, .rdmap_control = wire::rdmap_control(RdmapOpcode::send)}.emit(
          bytes);
      out_.add(bytes, {});
      requester_.skip_send_msn();
      break;
    }
  }
}

Requester::Posted Connection::post(const WorkRequest& request) {
  const auto posted = requester_.post(request);
  if (ended() && posted == Requester::Posted::ok) requester_.flush();
  return posted;
}

void Connection::plan_receive(std::vector<iovec>& out) {
  if (!ended()) deframer_.plan(out);
}

void Connection::received(std::size_t bytes) {
  if (ended()) return;
  deframer_.advance(bytes);
}

std::span<const iovec> Connection::plan_send() {
  if (!ended()) fill();
  return out_.pending();
}

void Connection::sent(std::size_t bytes) {
  out_.advance(bytes);
  if (ended()) return;
  requester_.retire();
  if (requester_.failed_locally()) end(EndReason::local_error);
}

void Connection::fill() {
  while (may_send_ && !ended() && out_.has_room() && fill_once()) {
  }
  if (may_send_ && !ended() && out_.has_room()) requester_.acknowledge();
}

// Answers and requests take turns, whole message by whole message (RFC 5041 §5.3). Answers wait for
// nothing but room.
bool Connection::fill_once() {
  const bool answer_first =
      !requester_.mid_message() && (responder_.mid_message() || responder_turn_);
  for (const bool answer : {answer_first, !answer_first}) {
    if (answer) {
      if (requester_.mid_message()) continue;
      TerminateRaised refusal;
      if (!responder_.build(refusal)) continue;
      if (refusal) raise(refused_request(*refusal));
    } else {
      if (responder_.mid_message()) continue;
      if (requester_.acknowledgement_due()) requester_.acknowledge();
      if (!requester_.build()) continue;
      if (requester_.failed_locally()) end(EndReason::local_error);
    }
    responder_turn_ = !answer;
    return true;
  }
  return false;
}

wire::Terminate Connection::refused_request(wire::TerminateCode code) const {
  wire::Terminate message = responder_.fault_report();
  message.code = code;
  return message;
}

// What was asked for earlier is answered as far as there is room. Between the segments of a message
// of ours there is none (RFC 5041 §5.3).
TerminateRaised Connection::answer_pending() {
  TerminateRaised refusal;
  while (!requester_.mid_message() && out_.has_room() && !refusal && responder_.build(refusal)) {
  }
  return refusal;
}

SegmentSink::Course Connection::begin(const Segment& segment) {
  const TerminateRaised raised = check(segment);
  if (raised) {
    raise(quote(*raised, &segment));
    return Course::refuse;
  }
  if (segment.tagged || is_send(segment.opcode)) return Course::place;
  return Course::control;
}

TerminateRaised Connection::check(const Segment& segment) {
  if (!segment.tagged) return check_untagged(segment);
  switch (segment.opcode) {
    case RdmapOpcode::write:
      return receiver_.check_write(segment);
    case RdmapOpcode::read_response:
      return requester_.check_read_response(segment);
    default:
      return wire::terminate::rdma_unexpected_opcode;
  }
}

// RFC 5041 §8 for the queues, RFC 5040 §4.8 for what travels on them.
TerminateRaised Connection::check_untagged(const Segment& segment) {
  const auto& header = segment.untagged_header;
  if (header.queue > wire::queue::atomic_response) return wire::terminate::untagged_invalid_queue;
  if (!belongs(segment.opcode, header.queue)) return wire::terminate::rdma_unexpected_opcode;
  if (is_send(segment.opcode)) {
    // RFC 6581 §5.1: the empty Send that only says "ready" finds no receive, and needs none.
    if (swallow_rtr_send(segment)) return std::nullopt;
    return receiver_.check_send(segment);
  }
  if (is_immediate(segment.opcode)) return std::nullopt;
  std::uint32_t expected = 1;
  if (header.queue == wire::queue::request) expected = expected_request_msn_;
  if (header.queue == wire::queue::atomic_response) expected = expected_answer_msn_;
  if (header.msn != expected) return wire::terminate::untagged_msn_range;
  if (header.message_offset != 0 || !header.last) return wire::terminate::untagged_invalid_offset;
  return std::nullopt;
}

bool Connection::swallow_rtr_send(const Segment& segment) {
  return !options_.initiator && !peer_ready_ && options_.rtr == RtrKind::send &&
         segment.payload_bytes == 0 && segment.last() && segment.untagged_header.msn == 1;
}

bool Connection::targets(const Segment& segment, std::uint32_t offset, std::uint32_t length,
                         std::vector<iovec>& out) {
  TerminateRaised raised;
  if (!segment.tagged) {
    raised = receiver_.send_targets(segment, offset, length, out);
  } else if (segment.opcode == RdmapOpcode::write) {
    raised = receiver_.write_targets(segment, offset, length, out);
  } else {
    raised = requester_.read_targets(segment, offset, length, out);
  }
  if (raised) raise(quote(*raised, &segment));
  return !raised;
}

bool Connection::deliver(const Segment& segment) {
  TerminateRaised raised;
  const bool ready_message = !segment.tagged && swallow_rtr_send(segment);
  if (ready_message) {
    receiver_.skip_send();
  } else if (!segment.tagged) {
    raised = receiver_.deliver_send(segment);
  } else if (segment.opcode == RdmapOpcode::write) {
    receiver_.deliver_write(segment);
  } else {
    requester_.deliver_read_response(segment);
  }
  if (raised) raise(quote(*raised, &segment));
  if (raised) return false;
  note_first_fpdu();
  if (requester_.failed_locally()) end(EndReason::local_error);
  return !ended();
}

bool Connection::control(const Segment& segment, Bytes payload) {
  if (segment.opcode == RdmapOpcode::terminate) {
    take_terminate(payload);
    return false;
  }
  const TerminateRaised raised = take_request(segment, payload);
  if (raised) {
    raise(quote(*raised, &segment));
    return false;
  }
  note_first_fpdu();
  if (requester_.failed_locally()) end(EndReason::local_error);
  return !ended();
}

TerminateRaised Connection::take_request(const Segment& segment, Bytes payload) {
  // A payload that is shorter than its format has no code of its own.
  const TerminateRaised malformed = wire::terminate::rdma_unspecified;
  if (is_immediate(segment.opcode)) {
    const auto parsed = wire::ImmediateData::parse(payload);
    return parsed ? receiver_.immediate(segment, *parsed) : malformed;
  }
  if (segment.opcode == RdmapOpcode::atomic_response) {
    const auto parsed = wire::AtomicResponse::parse(payload);
    ++expected_answer_msn_;
    return parsed ? requester_.atomic_response(*parsed) : malformed;
  }
  ++expected_request_msn_;
  if (segment.opcode == RdmapOpcode::atomic_request) {
    const auto parsed = wire::AtomicRequest::parse(payload);
    return parsed ? responder_.take_atomic(segment, *parsed) : malformed;
  }
  const auto parsed = wire::ReadRequest::parse(payload);
  return parsed ? responder_.take_read(segment, *parsed) : malformed;
}

void Connection::note_first_fpdu() {
  if (peer_ready_) return;
  peer_ready_ = true;
  may_send_ = true;
  host_.on_peer_ready();
}

void Connection::fault(wire::TerminateCode code, const Segment* segment) {
  raise(quote(code, segment));
}

// RFC 5040 §6.8: one Terminate is the last thing that a stream sends. Reads that came before the
// fault are answered first, so that the peer learns which of its requests were carried out; and if
// one of them is at fault itself, it was so earlier.
void Connection::raise(const wire::Terminate& message) {
  if (ended()) return;
  const TerminateRaised earlier = answer_pending();
  terminate_ = earlier ? refused_request(*earlier) : message;
  std::array<std::byte, wire::Terminate::max_bytes> payload;
  const std::size_t size = terminate_.size();
  terminate_.emit(MutableBytes(payload).first(size));
  std::array<std::byte, wire::DdpUntagged::header_bytes> header;
  wire::DdpUntagged{.last = true,
                    .rdmap_control = wire::rdmap_control(RdmapOpcode::terminate),
                    .queue = wire::queue::terminate}
      .emit(header);
  const iovec piece{payload.data(), size};
  // Room is kept for this: has_room() leaves a whole FPDU and more.
  out_.add(header, {&piece, 1});
  end(EndReason::terminated);
}

// RFC 5040 §6.8, §7.2: the other side's last word; nothing is sent in return.
void Connection::take_terminate(Bytes payload) {
  const auto parsed = wire::Terminate::parse(payload);
  terminate_ = parsed ? *parsed : wire::Terminate{.code = wire::terminate::rdma_unspecified};
  end_ = EndReason::peer_terminated;
  requester_.end_by_terminate(terminate_);
  end(EndReason::peer_terminated);
}

void Connection::peer_closed(std::uint64_t acknowledged_position) {
  if (ended()) return;
  end_ = EndReason::peer_closed;
  requester_.end_by_loss(acknowledged_position);
  end(EndReason::peer_closed);
}

void Connection::memory_lost() {
  if (ended()) return;
  receiver_.flush(Status::local_protection);
  requester_.blame_unsent();
  raise({.code = wire::terminate::rdma_stream_catastrophic});
}

void Connection::close() {
  if (ended()) return;
  (void)answer_pending();
  end(EndReason::local_close);
}

void Connection::end(EndReason reason) {
  if (end_ != EndReason::none && end_ != reason) return;
  end_ = reason;
  receiver_.flush();
  requester_.flush();
  // With its completion a request gives its memory back. What still has to go out is copied; to a
  // peer that left nothing is sent (RFC 5040 §6.8).
  const bool peer_left = reason == EndReason::peer_closed || reason == EndReason::peer_terminated;
  peer_left ? out_.clear() : out_.detach();
  host_.on_end(reason);
}

}  // namespace weft::iwarp
