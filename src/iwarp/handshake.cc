#include "iwarp/handshake.h"

#include <algorithm>
#include <array>

namespace weft::iwarp {
namespace {

using wire::MpaEnhanced;
using wire::MpaFrame;
using wire::MpaKind;
using wire::MpaMark;

// RFC 6581 §9: 0x3FFF means that the depth is agreed on by other means.
bool negotiates(std::uint16_t depth) {
  return depth != MpaEnhanced::no_negotiation;
}

}  // namespace

const char* describe(HandshakeFailure failure) {
  switch (failure) {
    case HandshakeFailure::none:
      return "no failure";
    case HandshakeFailure::closed:
      return "the peer closed the connection during MPA set-up";
    case HandshakeFailure::retry_revision_1:
      return "the peer closed on an MPA revision 2 request";
    case HandshakeFailure::not_mpa:
      return "the peer does not speak MPA";
    case HandshakeFailure::bad_frame:
      return "the peer sent a malformed MPA frame";
    case HandshakeFailure::insufficient_ird:
      return "the peer asks for more reads than can be held";
    case HandshakeFailure::no_matching_rtr:
      return "no common ready-to-receive message";
    case HandshakeFailure::not_extended:
      return "the peer has no extended connections (XRC)";
    case HandshakeFailure::timed_out:
      return "the peer did not finish MPA set-up in time";
  }
  return "unknown failure";
}

Handshake::Handshake(const HandshakeOptions& options, MpaKind expected)
    : options_(options), expected_(expected) {}

// RFC 6581 §6: the four bytes of enhanced data take their place from the private data.
std::size_t Handshake::max_private_data_bytes(std::uint8_t revision) {
  return MpaFrame::max_private_data_bytes - (revision >= 2 ? MpaEnhanced::header_bytes : 0);
}

// The header comes first, since it has the length of the private data.
std::size_t Handshake::wanted_bytes() const {
  if (complete_ || failed()) return 0;
  if (input_.size() < MpaFrame::header_bytes) return MpaFrame::header_bytes - input_.size();
  return MpaFrame::header_bytes + peer_.private_data_bytes - input_.size();
}

void Handshake::input(Bytes bytes) {
  // Takes no byte beyond the frame: what follows belongs to the stream, which another object reads.
  while (!bytes.empty() && wanted_bytes() > 0) {
    const Bytes part = bytes.first(std::min(bytes.size(), wanted_bytes()));
    input_.insert(input_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (input_.size() == MpaFrame::header_bytes) take_header();
    if (!failed() && wanted_bytes() == 0) take_private_data();
  }
}

void Handshake::take_header() {
  const auto parsed = MpaFrame::parse(input_);
  if (!parsed) {
    // A wrong key is a peer that speaks something else, which deserves another message than a bad
    // field.
    const bool key = parsed.error() == wire::WireError::bad_key;
    return fail(key ? HandshakeFailure::not_mpa : HandshakeFailure::bad_frame);
  }
  peer_ = *parsed;
  // RFC 5044 §7.1: two initiators, or two responders, cannot set up a connection, and private data
  // has a maximum length.
  if (peer_.kind != expected_ || peer_.private_data_bytes > MpaFrame::max_private_data_bytes) {
    return fail(HandshakeFailure::bad_frame);
  }
  // The flag promises data that the frame does not have.
  if (peer_.enhanced && peer_.private_data_bytes < MpaEnhanced::header_bytes) {
    return fail(HandshakeFailure::bad_frame);
  }
}

void Handshake::take_private_data() {
  complete_ = true;
  if (peer_.enhanced) {
    peer_enhanced_ = *MpaEnhanced::parse(Bytes(input_).subspan(MpaFrame::header_bytes));
  }
  on_frame();
}

Bytes Handshake::peer_private_data() const {
  if (!complete_) return {};
  return Bytes(input_).subspan(MpaFrame::header_bytes +
                               (peer_.enhanced ? MpaEnhanced::header_bytes : 0));
}

void Handshake::input_closed() {
  // The end of the peer's side after its frame is no failure of the handshake; the stream will
  // notice it.
  if (complete_ || failed()) return;
  // RFC 6581 §10: a responder that knows only revision 1 closes the connection without a reply.
  const bool old = expected_ == MpaKind::reply && input_.empty() && options_.revision >= 2;
  fail(old ? HandshakeFailure::retry_revision_1 : HandshakeFailure::closed);
}

void Handshake::on_time(std::uint64_t now_ns) {
  // Once the frame is complete, only the application can still take time.
  if (now_ns >= options_.deadline_ns && !complete_ && !failed()) fail(HandshakeFailure::timed_out);
}

// Builds this side's frame. RFC 6581 §6: the enhanced data is the first part of the private data.
void Handshake::put(const MpaFrame& frame, const MpaEnhanced* enhanced, Bytes private_data) {
  MpaFrame sized = frame;
  const std::size_t extra = enhanced ? MpaEnhanced::header_bytes : 0;
  sized.private_data_bytes = static_cast<std::uint16_t>(extra + private_data.size());
  output_.resize(MpaFrame::header_bytes + extra);
  sized.emit(output_);
  if (enhanced) enhanced->emit(MutableBytes(output_).subspan(MpaFrame::header_bytes));
  output_.insert(output_.end(), private_data.begin(), private_data.end());
}

// Adds a Terminate as the first and last FPDU of the stream.
void Handshake::put_terminate(wire::TerminateCode code) {
  const wire::Terminate message{.code = code};
  std::array<std::byte, wire::Terminate::max_bytes> payload;
  message.emit(payload);
  std::array<std::byte, wire::DdpUntagged::header_bytes> header;
  wire::DdpUntagged{.last = true,
                    .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::terminate),
                    .queue = wire::queue::terminate}
      .emit(header);
  Transmitter out;
  out.configure({.crc = negotiated_.crc, .markers = negotiated_.send_markers});
  out.add_own(header, Bytes(payload).first(message.size()));
  for (const auto& part : out.pending()) {
    const auto* at = static_cast<const std::byte*>(part.iov_base);
    output_.insert(output_.end(), at, at + part.iov_len);
  }
}

ActiveHandshake::ActiveHandshake(const HandshakeOptions& options, Bytes private_data)
    : Handshake(options, MpaKind::reply) {
  const bool enhanced = options.revision >= 2;
  const MpaFrame frame{.kind = MpaKind::request,
                       .markers = options.markers,
                       .crc = options.crc,
                       .enhanced = enhanced,
                       .mark = options.mark ? MpaMark::request : MpaMark::none,
                       .words = options.words,
                       .extended = options.extended,
                       .revision = options.revision};
  // The kinds are only meaningful together with the peer-to-peer flag.
  const MpaEnhanced data{.peer_to_peer = options.peer_to_peer,
                         .rtr_send = options.peer_to_peer && options.rtr.send,
                         .rtr_write = options.peer_to_peer && options.rtr.write,
                         .rtr_read = options.peer_to_peer && options.rtr.read,
                         .ird = options.ird,
                         .ord = options.ord};
  put(frame, enhanced ? &data : nullptr, private_data);
}

void ActiveHandshake::on_frame() {
  // RFC 6581 §10: a reply of another revision than the request is an error, not a fallback.
  const bool asked_enhanced = options_.revision >= 2;
  if (peer_.revision != options_.revision || (!peer_.reject && peer_.enhanced != asked_enhanced)) {
    return fail(HandshakeFailure::bad_frame);
  }
  // A rejection needs no agreement, and its private data is for the application.
  if (peer_.reject) {
    rejected_ = true;
    return;
  }
  agree();
}

void ActiveHandshake::agree() {
  negotiated_ = {.revision = peer_.revision,
                 .crc = options_.crc || peer_.crc,  // RFC 5044 §7.1: either side may insist
                 .send_markers = peer_.markers,
                 .enhanced = peer_.enhanced,
                 .ird = options_.ird,
                 .ord = options_.ord,
                 .weft = options_.mark && peer_.mark == MpaMark::reply};
  negotiated_.words = negotiated_.weft && options_.words && peer_.words;
  negotiated_.extended = negotiated_.weft && options_.extended && peer_.extended;
  if (options_.extended && !negotiated_.extended) return fail(HandshakeFailure::not_extended);
  if (!peer_.enhanced) {
    // No RFC asks for this: without an FPDU of the initiator a responder that sends first would
    // wait for ever (RFC 5044 §7.1), and an empty Write does no harm.
    negotiated_.rtr = RtrKind::write;
  } else {
    if (negotiates(peer_enhanced_.ird) && negotiates(options_.ord)) {
      negotiated_.ird_ord_negotiated = true;
      // No more reads may be under way than the responder has room for.
      negotiated_.ord = std::min(options_.ord, peer_enhanced_.ird);
    }
    // RFC 6581 §9.2: the responder's ORD may not exceed the IRD that we sent.
    if (negotiates(peer_enhanced_.ord) && negotiates(options_.ird) &&
        peer_enhanced_.ord > options_.ird) {
      return give_up(HandshakeFailure::insufficient_ird, wire::terminate::mpa_insufficient_ird);
    }
    if (!choose_rtr()) {
      return give_up(HandshakeFailure::no_matching_rtr, wire::terminate::mpa_no_matching_rtr);
    }
  }
  accepted_ = true;
}

// RFC 6581 §8: the responder considers the connection accepted, so a Terminate reports the failure.
void ActiveHandshake::give_up(HandshakeFailure failure, wire::TerminateCode code) {
  put_terminate(code);
  fail(failure);
}

// The reply may name several kinds, offered or not; the initiator chooses (RFC 6581 §9.1). An empty
// Write is preferred, because it costs the responder nothing.
bool ActiveHandshake::choose_rtr() {
  // In client-server mode the first FPDU is one of the application, as RFC 5044 §7.1 has it.
  if (!options_.peer_to_peer || !peer_enhanced_.peer_to_peer) return true;
  if (peer_enhanced_.rtr_write && options_.rtr.write) {
    negotiated_.rtr = RtrKind::write;
  } else if (peer_enhanced_.rtr_read && options_.rtr.read && negotiated_.ord > 0) {
    // A read needs a place in the responder's queue.
    negotiated_.rtr = RtrKind::read;
  } else if (peer_enhanced_.rtr_send && options_.rtr.send) {
    negotiated_.rtr = RtrKind::send;
  } else {
    return false;
  }
  return true;
}

PassiveHandshake::PassiveHandshake(const HandshakeOptions& options)
    : Handshake(options, MpaKind::request) {}

void PassiveHandshake::on_frame() {
  // Only a reply can reject.
  if (peer_.reject) return fail(HandshakeFailure::bad_frame);
  // Revision 2 without enhanced data has the semantics of revision 1 (RFC 6581 §8).
  requested_ = true;
}

// The reply repeats the revision, and has the C flag if either side insists on CRCs (RFC 5044
// §7.1).
MpaFrame PassiveHandshake::reply_frame() const {
  return {.kind = MpaKind::reply,
          .markers = options_.markers,
          .crc = options_.crc || peer_.crc,
          .enhanced = peer_.enhanced,
          .mark = is_marked() ? MpaMark::reply : MpaMark::none,
          .words = options_.words && peer_.words,
          .extended = extended(),
          .revision = peer_.revision};
}

bool PassiveHandshake::is_marked() const {
  return options_.mark && peer_.mark == MpaMark::request;
}

void PassiveHandshake::accept(std::uint16_t ird, std::uint16_t ord, Bytes private_data) {
  negotiated_ = {.revision = peer_.revision,
                 .crc = options_.crc || peer_.crc,
                 .send_markers = peer_.markers,
                 .enhanced = peer_.enhanced,
                 .ird = ird,
                 .ord = ord,
                 .weft = is_marked(),
                 .words = is_marked() && options_.words && peer_.words,
                 .extended = extended()};
  accepted_ = true;
  // Towards an unenhanced request the reply has no place for IRD and ORD.
  if (!peer_.enhanced) return put(reply_frame(), nullptr, private_data);

  MpaEnhanced data{.ird = ird, .ord = ord};
  if (negotiates(peer_enhanced_.ord)) {
    // RFC 6581 §9.1: the responder raises its IRD towards the initiator's ORD as far as it can.
    negotiated_.ird_ord_negotiated = true;
    negotiated_.ird = std::clamp(peer_enhanced_.ord, ird, std::max(ird, options_.max_ird));
    data.ird = negotiated_.ird;
  }
  if (negotiates(peer_enhanced_.ird)) {
    negotiated_.ord = std::min(ord, peer_enhanced_.ird);
    data.ord = negotiated_.ord;
  }
  if (peer_enhanced_.peer_to_peer) {
    data.peer_to_peer = true;
    data.rtr_write = peer_enhanced_.rtr_write && options_.rtr.write;
    data.rtr_read = peer_enhanced_.rtr_read && options_.rtr.read;
    data.rtr_send = peer_enhanced_.rtr_send && options_.rtr.send;
    // Where nothing matches, naming what we accept lets the initiator choose or give up (§9.1).
    if (!data.rtr_write && !data.rtr_read && !data.rtr_send) {
      data.rtr_write = options_.rtr.write;
      data.rtr_read = options_.rtr.read;
      data.rtr_send = options_.rtr.send;
    }
    // This side only has to know whether a Send may come that takes no receive. Writes and reads of
    // no bytes need no preparation.
    negotiated_.rtr = data.rtr_send ? RtrKind::send : RtrKind::write;
  }
  put(reply_frame(), &data, private_data);
}

void PassiveHandshake::reject(Bytes private_data) {
  rejected_ = true;
  MpaFrame frame = reply_frame();
  frame.reject = true;
  const MpaEnhanced data{.ird = options_.ird, .ord = options_.ord};
  put(frame, frame.enhanced ? &data : nullptr, private_data);
}

}  // namespace weft::iwarp
