// Inbound segments: checks them and passes them to the requester, responder or receiver.
#include "iwarp/connection.h"
#include "iwarp/fault_codes.h"

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

// The four Sends have consecutive opcodes (RFC 5040 §4.1).
bool is_send(RdmapOpcode opcode) {
  return opcode >= RdmapOpcode::send && opcode <= RdmapOpcode::send_solicited_invalidate;
}

bool is_immediate(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::immediate_data || opcode == RdmapOpcode::immediate_data_solicited;
}

// RFC 5040 §4.1, RFC 7306 §4: which messages are sent on which queue.
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

}  // namespace

// The first FPDU of the peer has more effects: see note_first_fpdu().
bool Connection::take_send(std::uint32_t msn, Bytes payload) {
  return peer_ready_ && !discards_requests() && receiver_.take_send(msn, payload);
}

bool Connection::take_write(std::uint32_t stag, std::uint64_t offset, Bytes payload) {
  return peer_ready_ && !discards_requests() && !is_control_stag(stag) &&
         receiver_.take_write(stag, offset, payload);
}

// A segment that is refused is still taken off the stream (Course::place, into a sink that discards
// it) as long as the stream continues: see refuse().
// Called before the payload is read, so that a segment that may not be placed is never placed, not
// even in part.
SegmentSink::Course Connection::begin(const Segment& segment) {
  if (is_discarded(segment)) return Course::place;
  const TerminateRaised raised = check(segment);
  if (raised) return refuse(*raised, segment) ? Course::place : Course::refuse;
  // Everything that is not application data is collected whole, because its meaning is in the
  // payload.
  if (segment.tagged) return is_control_word(segment) ? Course::control : Course::place;
  return is_send(segment.opcode) ? Course::place : Course::control;
}

TerminateRaised Connection::check(const Segment& segment) {
  if (!segment.tagged) return check_untagged(segment);
  switch (segment.opcode) {
    case RdmapOpcode::write:
      if (is_control_word(segment)) return check_control_word(segment);
      return receiver_.check_write(segment);
    case RdmapOpcode::read_response:
      return requester_.check_read_response(segment);
    // A tagged segment is a Write or a Read Response; other opcodes belong on queues (RFC 5040
    // §4.1).
    default:
      return wire::terminate::rdma_unexpected_opcode;
  }
}

// RFC 5041 §7 has the rules for queues, RFC 5040 §4.8 those for the messages on them. Messages of
// the other queues are single segments, numbered for each queue.
TerminateRaised Connection::check_untagged(const Segment& segment) {
  const auto& header = segment.untagged_header;
  // RFC 5040 has queues 0 to 2, RFC 7306 adds queue 3 for atomic responses.
  if (header.queue > wire::queue::atomic_response) return wire::terminate::untagged_invalid_queue;
  if (!belongs(segment.opcode, header.queue)) return wire::terminate::rdma_unexpected_opcode;
  if (is_send(segment.opcode)) {
    // RFC 6581 §5.1: the empty Send of a ready-to-receive message needs no receive.
    if (swallow_rtr_send(segment)) return std::nullopt;
    return receiver_.check_send(segment);
  }
  // Immediate Data shares the MSNs of queue 0 with Sends; Receiver::immediate() checks it.
  if (is_immediate(segment.opcode)) return std::nullopt;
  // A stream has at most one Terminate, and it is the first message of its queue.
  std::uint32_t expected = 1;
  if (header.queue == wire::queue::request) expected = expected_request_msn_;
  if (header.queue == wire::queue::atomic_response) expected = expected_answer_msn_;
  if (header.msn != expected) return wire::terminate::untagged_msn_range;
  // Requests, responses of atomics and Terminates fit into one segment, so an MO or a missing L
  // flag is an error.
  if (header.message_offset != 0 || !header.last) return wire::terminate::untagged_invalid_offset;
  return std::nullopt;
}

// Whether this is the ready-to-receive message that was agreed on: the first FPDU, an empty Send.
bool Connection::swallow_rtr_send(const Segment& segment) {
  // Later empty Sends are ordinary messages, which take a receive.
  return !options_.initiator && !peer_ready_ && options_.rtr == RtrKind::send &&
         segment.payload_bytes == 0 && segment.last() && segment.untagged_header.msn == 1;
}

bool Connection::targets(const Segment& segment, std::uint32_t offset, std::uint32_t length,
                         std::vector<iovec>& out) {
  // The bytes must be taken off the stream to find the next FPDU, but they have no place.
  if (is_discarded(segment) || is_dropped(segment) || requester_.discards(segment)) {
    discard_into(out, length);
    return true;
  }
  TerminateRaised raised;
  if (!segment.tagged) {
    raised = receiver_.send_targets(segment, offset, length, out);
  } else if (segment.opcode == RdmapOpcode::write) {
    raised = receiver_.write_targets(segment, offset, length, out);
  } else {
    raised = requester_.read_targets(segment, offset, length, out);
  }
  if (!raised) return true;
  // The region has disappeared between two reads of one segment. While earlier requests are still
  // to be settled, the rest of it is discarded.
  if (!refuse(*raised, segment)) return false;
  out.clear();
  discard_into(out, length);
  return true;
}

// The application has unmapped memory that is still registered. As in targets(), the rest of the
// message is taken off the stream where it continues.
bool Connection::lost(const Segment& segment) {
  if (!segment.tagged) return refuse(receiver_.send_lost(), segment);
  if (segment.opcode == RdmapOpcode::write) return refuse(Receiver::write_lost(), segment);
  return refuse(requester_.read_lost(), segment);
}

bool Connection::deliver(const Segment& segment) {
  if (is_discarded(segment)) {
    if (!segment.tagged && is_send(segment.opcode)) receiver_.note_discarded(segment);
    return true;
  }
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
  if (raised) return refuse(*raised, segment);
  // Before the next segment, since a receive that was posted meanwhile belongs to the oldest held
  // message.
  if (receiver_.holds()) settle_held();
  note_first_fpdu();
  end_if_over();
  return !ended();
}

bool Connection::control(const Segment& segment, Bytes payload) {
  if (is_discarded(segment)) return true;  // since begin(), this side has begun to close
  if (segment.opcode == RdmapOpcode::terminate) {
    take_terminate(payload);
    return false;
  }
  if (segment.tagged) {
    if (!take_control_word(segment, payload)) return false;
  } else if (const TerminateRaised raised = take_request(segment, payload)) {
    return refuse(*raised, segment);
  }
  if (receiver_.holds()) settle_held();
  note_first_fpdu();
  end_if_over();
  return !ended();
}

// A whole untagged message that is not a Send. The responder must know which held messages came
// before a request, so that it does not answer too early: see Receiver::held().
TerminateRaised Connection::take_request(const Segment& segment, Bytes payload) {
  // RFC 5040 §4.8 has no code for a payload that is shorter than its format.
  const TerminateRaised malformed = wire::terminate::rdma_unspecified;
  if (is_immediate(segment.opcode)) {
    const auto parsed = wire::ImmediateData::parse(payload);
    return parsed ? receiver_.immediate(segment, *parsed) : malformed;
  }
  if (segment.opcode == RdmapOpcode::atomic_response) {
    const auto parsed = wire::AtomicResponse::parse(payload);
    // Counted before the payload is looked at: the message has arrived, whatever its content is.
    ++expected_answer_msn_;
    return parsed ? requester_.atomic_response(*parsed) : malformed;
  }
  ++expected_request_msn_;
  if (segment.opcode == RdmapOpcode::atomic_request) {
    const auto parsed = wire::AtomicRequest::parse(payload);
    if (!parsed) return malformed;
    if (const auto raised = responder_.take_atomic(segment, *parsed, place_of_request())) {
      return raised;
    }
  } else {
    const auto parsed = wire::ReadRequest::parse(payload);
    if (!parsed) return malformed;
    if (const auto raised = responder_.take_read(segment, *parsed, place_of_request())) {
      return raised;
    }
  }
  // After the request was queued: its place is the number of messages before it, plus one.
  receiver_.count_request();
  return std::nullopt;
}

// RFC 5044 §7.1: a responder may send once the initiator's first FPDU has arrived.
void Connection::note_first_fpdu() {
  if (peer_ready_) return;
  peer_ready_ = true;
  may_send_ = true;
  rtr_repeat_.stop();
  host_.on_peer_ready();
}

// Framing or CRC are wrong: nothing that follows can be understood, so the Terminate is not
// deferred.
void Connection::fault(wire::TerminateCode code, const Segment* segment) {
  raise(quote(code, segment));
}

}  // namespace weft::iwarp
