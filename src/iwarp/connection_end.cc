// How a stream ends, from either side.
#include <array>

#include "iwarp/connection.h"

namespace weft::iwarp {

wire::Terminate Connection::refused_request(wire::TerminateCode code) const {
  wire::Terminate message = responder_.fault_report();
  message.code = code;
  return message;
}

// What was asked for earlier is answered as far as there is room. Between the segments of a message
// of ours there is none (RFC 5041 §5.3).
TerminateRaised Connection::answer_pending() {
  TerminateRaised refusal;
  while (!requester_.mid_message() && out_.has_room() && !refusal &&
         responder_.build(refusal, receiver_.placed())) {
  }
  return refusal;
}

// RFC 5040 §6.8: one Terminate is the last thing that a stream sends. Reads that came before the
// fault are answered first, so that the peer learns which of its requests were carried out; and if
// one of them is at fault itself, it was so earlier.
//
// A stream to itself goes on receiving until the Terminate has come around: the request at fault is
// its own, and so are the reads whose answers are still on their way.
void Connection::raise(const wire::Terminate& message, std::optional<std::uint64_t> executed) {
  if (ended()) return;
  if (last_word_said_) return end(EndReason::terminated);
  if (const TerminateRaised earlier = answer_pending()) {
    terminate_ = refused_request(*earlier);
    executed = responder_.fault_number() - 1;
  } else {
    terminate_ = message;
  }
  if (executed) say_executed(*executed);
  std::array<std::byte, wire::Terminate::max_bytes> payload;
  const std::size_t size = terminate_.size();
  terminate_.emit(MutableBytes(payload).first(size));
  std::array<std::byte, wire::DdpUntagged::header_bytes> header;
  wire::DdpUntagged{.last = true,
                    .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::terminate),
                    .queue = wire::queue::terminate}
      .emit(header);
  const iovec piece{payload.data(), size};
  // Room is kept for this: has_room() leaves a whole FPDU and more.
  out_.add(header, {&piece, 1});
  last_word_said_ = options_.to_itself && executed;
  if (!last_word_said_) end(EndReason::terminated);
}

// The last word before a Terminate or the end: it may stand in the middle of another message.
void Connection::say_executed(std::uint64_t messages) {
  control_.put(wire::ControlWord::executed, messages);
  control_.build(out_);
}

// RFC 5040 §6.8, §7.2: the other side's last word; nothing is sent in return.
void Connection::take_terminate(Bytes payload) {
  const auto parsed = wire::Terminate::parse(payload);
  terminate_ = parsed ? *parsed : wire::Terminate{.code = wire::terminate::rdma_unspecified};
  end_ = last_word_said_ ? EndReason::terminated : EndReason::peer_terminated;
  requester_.end_by_terminate(terminate_, executed_);
  end(end_);
}

void Connection::peer_closed(std::uint64_t acknowledged_position) {
  if (ended()) return;
  end_ = EndReason::peer_closed;
  requester_.end_by_loss(acknowledged_position, executed_);
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
  if (last_word_said_) return end(EndReason::local_close);
  (void)answer_pending();
  // The peer's TCP has seen them arrive, and they will not be placed.
  if (receiver_.holds()) say_executed(receiver_.executed());
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
