// Set-up of a stream, and sending: answers and requests take turns.
#include "iwarp/connection.h"

#include <algorithm>
#include <array>

namespace weft::iwarp {

using wire::RdmapOpcode;

// A peer that takes no reads (ORD 0) can prove nothing, so completions then mean "TCP has it". The
// peer's hold is only known together with control words, and limits nothing without them.
Connection::Connection(const Options& options, Host& host)
    : options_(options),
      host_(host),
      control_(options.peer.control_stag),
      requester_(options.limits,
                 // The queue of the responder and the hold of the receiver are limits of this side;
                 // those of the peer are in the options of the requester.
                 {.acknowledge = options.acknowledge && options.wire_ord > 0,
                  .ord = std::min(options.ord, options.wire_ord),
                  .wire_ord = options.wire_ord,
                  .send_immediate = options.peer.send_immediate,
                  .names_queues = options.peer.names_queues,
                  .unreliable = options.unreliable,
                  .window_bytes = options.peer.control_stag != 0 ? options.peer.hold_bytes : 0},
                 host, out_, control_),
      responder_({.ird = options.ird}, host, out_),
      receiver_({.hold_bytes = options.receiver_not_ready.hold_bytes,
                 .announcements = options.peer.send_immediate,
                 .names_queues = options.peer.names_queues,
                 .drops = options.unreliable},
                host),
      deframer_({.crc = options.crc, .strict = options.crc && options.strict_crc}, *this),
      // RFC 5044 §7.1: the initiator sends the first FPDU.
      may_send_(options.initiator) {
  out_.configure(
      {.crc = options.crc, .markers = options.send_markers, .mulpdu_bytes = options.mulpdu_bytes});
  if (options.initiator) send_rtr();
}

// RFC 6581 §5.1: the initiator's first message, so that the responder may send. Revision 1 does not
// know such messages, but an empty Write does no harm there and has the same effect.
void Connection::send_rtr() {
  switch (options_.rtr) {
    case RtrKind::none:
      break;
    // A read that names no memory is also what a probe is, so its response is handled as one.
    case RtrKind::read:
      requester_.build_probe();
      break;
    case RtrKind::write:
      send_empty_write();
      break;
    // The Send has an MSN of queue 0, which the first Send of the application must not use again.
    case RtrKind::send: {
      std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
      wire::DdpUntagged{.last = true, .rdmap_control = wire::rdmap_control(RdmapOpcode::send)}.emit(
          bytes);
      out_.add_own(bytes, {});
      requester_.count_rtr_send();
      break;
    }
  }
  // A Weft peer does not lose the message.
  const bool weft = options_.peer.control_stag != 0 || options_.peer.send_immediate;
  if (options_.rtr != RtrKind::none && !weft) rtr_repeat_.arm();
}

void Connection::send_empty_write() {
  // Without payload the STag names no memory (RFC 5040 §5.1). Some responders refuse 0 all the
  // same.
  const wire::DdpTagged header{.last = true,
                               .rdmap_control = wire::rdmap_control(RdmapOpcode::write),
                               .stag = no_memory_stag};
  std::array<std::byte, wire::DdpTagged::header_bytes> bytes;
  header.emit(bytes);
  out_.add_own(bytes, {});
  requester_.count_rtr_write();
  rtr_repeat_.sent();
}

// A queue pair may be posted to after its stream has ended; such requests complete as flushed, and
// keep the order with those before them.
Requester::Posted Connection::post(const WorkRequest& request) {
  const auto posted = requester_.post(request);
  if (ended() && posted == Requester::Posted::ok) requester_.flush();
  return posted;
}

// After the end nothing more is read: what follows a Terminate, or our own end, has no meaning.
void Connection::plan_receive(std::vector<iovec>& out) {
  if (!ended()) deframer_.plan(out);
}

void Connection::received(std::size_t bytes) {
  if (ended()) return;
  deframer_.advance(bytes);
  // The peer closes the stream as well. Its Terminate, if it sends one, comes with this word.
  if (requester_.finishing() && executed_ && !ended()) {
    requester_.placed(*executed_);
    close();
  }
}

std::span<const iovec> Connection::plan_send() {
  if (!ended()) fill();
  // Memory that forget() could not copy was to be sent. The FPDU would have a hole.
  if (out_.lost()) send_memory_lost();
  return out_.pending();
}

// Where completions mean "TCP has it", requests may complete here, and with them a failed one that
// comes next.
void Connection::sent(std::size_t bytes) {
  out_.advance(bytes);
  if (ended()) return;
  requester_.retire();
  end_if_over();
}

// Builds until the transmitter is full or nothing is left. A probe is added last, so that one
// proves everything that is sent now.
void Connection::fill() {
  while (something_waits() && may_build() && (fill_once() || control_.due())) {
  }
  if (!may_build()) return;
  requester_.acknowledge();
  // A word that belongs to the probe leaves with it. As a segment of its own it could find a peer
  // that has closed after the message. TCP answers with a reset then (RFC 9293 §3.6.1), and the
  // proof of the message is lost with what the peer's TCP had still to send.
  if (control_.due() && between_messages()) control_.build(out_);
}

// Builds one message, or as much of it as there is room for; of a list several requests. Answers
// and requests take turns by whole messages (RFC 5041 §5.3), so that neither side of a busy stream
// starves. A request that has to wait does not hold up answers. Returns false where there is
// nothing to build.
bool Connection::fill_once() {
  if (deferred_) {
    raise_deferred();
    if (!may_build()) return false;
  }
  // Before the choice, because a read that waits behind a held message is no answer that could be
  // built.
  if (receiver_.holds() || owes_proof()) report_placed();
  // A ready-to-receive message is a message of its own, so it may not cut another one in two (RFC
  // 5041 §5.3).
  if (rtr_repeat_.due() && between_messages()) {
    send_empty_write();
    return true;
  }
  if (control_.due() && between_messages()) {
    control_.build(out_);
    return true;
  }
  // Whichever side is within a message must continue; otherwise they alternate.
  const bool answer_first =
      !requester_.mid_message() && (responder_.mid_message() || responder_turn_);
  for (const bool answer : {answer_first, !answer_first}) {
    if (answer) {
      if (requester_.mid_message()) continue;
      TerminateRaised refusal;
      if (!responder_.build(refusal, receiver_.placed())) continue;
      // The messages before the one at fault were carried out.
      if (refusal) raise(refused_request(*refusal), responder_.fault_number() - 1);
    } else {
      if (responder_.mid_message()) continue;
      // In a long batch a probe goes between two requests, so that the first ones complete early.
      if (requester_.acknowledgement_due()) requester_.acknowledge();
      if (!requester_.build()) continue;
      // Requests of a list follow each other as long as nothing else waits for its turn.
      while (!requester_.all_built() && responder_.idle() && !control_.due() &&
             !requester_.acknowledgement_due() && may_build() && requester_.build()) {
      }
      if (requester_.failed_locally()) end(EndReason::local_error);
    }
    responder_turn_ = !answer;
    return true;
  }
  return false;
}

}  // namespace weft::iwarp
