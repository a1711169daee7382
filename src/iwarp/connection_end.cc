// The end of a stream, from either side.
#include <array>

#include "iwarp/connection.h"

namespace weft::iwarp {

// The Terminate for a request of the peer that the Responder refused.
wire::Terminate Connection::refused_request(wire::TerminateCode code) const {
  wire::Terminate message = responder_.fault_report();
  message.code = code;
  return message;
}

// Builds the answers to the peer's earlier requests, as far as there is room. Between the segments
// of our own message there is none (RFC 5041 §5.3). Returns the error of an answer that was
// refused.
TerminateRaised Connection::answer_pending() {
  TerminateRaised refusal;
  while (!requester_.mid_message() && out_.has_room() && !refusal &&
         responder_.build(refusal, receiver_.placed())) {
  }
  // A proof that was wanted without a read is an answer, too.
  if (owes_proof() && !requester_.mid_message() && !responder_.mid_message() && out_.has_room()) {
    report_placed();
    control_.build(out_);
  }
  return refusal;
}

// Sends a Terminate and ends the stream. RFC 5040 §5.4: it is the last message that a stream sends.
// Reads that arrived before the fault are answered first, so that the peer learns which of its
// requests were carried out. If one of those is at fault itself, it is reported instead, since it
// came earlier.
//
// A stream to itself continues to receive until the Terminate has come around: the request at fault
// is its own, and so are the reads that still wait for their answers.
void Connection::raise(const wire::Terminate& message, std::optional<std::uint64_t> executed) {
  if (ended()) return;
  // A second fault while the first Terminate is on its way round: the stream ends with the first
  // one.
  if (terminate_looping_) return end(EndReason::terminated);
  if (const TerminateRaised earlier = answer_pending()) {
    terminate_ = refused_request(*earlier);
    executed = responder_.fault_number() - 1;
  } else {
    terminate_ = message;
  }
  // Before the Terminate, which is the last message. Without the count the peer has to find the
  // request at fault by the quoted header.
  if (executed) report_executed(*executed);
  std::array<std::byte, wire::Terminate::max_bytes> payload;
  const std::size_t size = terminate_.size();
  terminate_.emit(MutableBytes(payload).first(size));
  std::array<std::byte, wire::DdpUntagged::header_bytes> header;
  wire::DdpUntagged{.last = true,
                    .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::terminate),
                    .queue = wire::queue::terminate}
      .emit(header);
  // Transmitter::has_room() keeps a reserve for this.
  out_.add_own(header, Bytes(payload).first(size));
  // A stream to itself waits for its own Terminate only where one of its requests is at fault,
  // which is when a count of executed messages exists.
  terminate_looping_ = options_.to_itself && executed;
  if (!terminate_looping_) end(EndReason::terminated);
}

// Reports to a Weft peer how many of its messages were carried out, right before a Terminate or the
// end of the stream. The word may be sent in the middle of another message, which is cut anyway.
void Connection::report_executed(std::uint64_t messages) {
  control_.put(wire::ControlWord::executed, messages);
  control_.build(out_);
}

// RFC 5040 §5.4, §7.2: a Terminate ends the stream, and nothing is sent in return. `end_` is set
// before the requests complete, so that nothing is built meanwhile.
void Connection::take_terminate(Bytes payload) {
  // A malformed Terminate ends the stream as well; then nothing is known of the cause.
  const auto parsed = wire::Terminate::parse(payload);
  terminate_ = parsed ? *parsed : wire::Terminate{.code = wire::terminate::rdma_unspecified};
  end_ = terminate_looping_ ? EndReason::terminated : EndReason::peer_terminated;
  requester_.end_by_terminate(terminate_, executed_);
  end(end_);
}

void Connection::peer_closed(std::uint64_t acknowledged_position) {
  if (ended()) return;
  end_ = EndReason::peer_closed;
  // `executed_` is known where the peer reported its count before it closed.
  requester_.end_by_loss(acknowledged_position, executed_);
  end(EndReason::peer_closed);
}

// After that the rest of the segment is read and discarded, as after any refused segment.
void Connection::receive_memory_lost() {
  if (!ended() && !deframer_.target_lost()) send_memory_lost();
}

// It is not known whose memory was lost, so the first unsent request fails. An FPDU that cannot be
// completed is cut, and then there is no Terminate either.
void Connection::send_memory_lost() {
  if (ended()) return;
  // On Linux, sendmsg() with EFAULT does not state which piece it could not read.
  requester_.blame_unsent();
  raise({.code = wire::terminate::rdma_stream_catastrophic});
}

void Connection::close() {
  if (ended()) return;
  if (terminate_looping_) return end(EndReason::local_close);
  // Reads that arrived are answered before the close, since their requesters may wait for that
  // proof. A refusal among them needs no Terminate any more.
  (void)answer_pending();
  // The peer's TCP will know that what comes from here on has arrived, and that held messages have,
  // but nothing of it is placed: report how many messages were.
  if (may_send_) report_executed(receiver_.executed());
  end(EndReason::local_close);
}

// The count of executed messages tells a Weft peer which of its requests are still carried out. A
// peer that closes the stream as well sends one, too, and proves nothing behind it: see received().
// On a stream to itself the requests that would be discarded are our own.
void Connection::close_when_proven() {
  if (ended() || requester_.finishing()) return;
  (void)answer_pending();
  if (executed_) requester_.placed(*executed_);
  requester_.finish();
  if (requester_.finished() || executed_ || deferred_ || options_.to_itself) return close();
  control_.put(wire::ControlWord::executed, receiver_.executed());
  receiver_.flush();
}

// After whatever may have completed a request.
void Connection::end_if_over() {
  // A request has failed on this side, and the one before it has completed.
  if (requester_.failed_locally()) return end(EndReason::local_error);
  if (requester_.finished()) close();
}

void Connection::end(EndReason reason) {
  // The first reason counts. take_terminate() and peer_closed() set it before they call this.
  if (end_ != EndReason::none && end_ != reason) return;
  end_ = reason;
  receiver_.flush();
  requester_.flush();
  // A completed request returns its memory to the application, so whatever is still to be sent from
  // it is copied. To a peer that has ended the stream nothing is sent (RFC 5040 §5.4).
  const bool peer_left = reason == EndReason::peer_closed || reason == EndReason::peer_terminated;
  peer_left ? out_.clear() : out_.detach();
  host_.on_end(reason);
}

}  // namespace weft::iwarp
