#include "capture/iwarp/iwarp_connection.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "wire/control_word.h"
#include "wire/hello.h"

namespace weft::capture {
namespace {

constexpr std::string_view request_key = "MPA ID Req Frame";
// Minimum time between the first FIN and the end of the trace to call a connection half-open. A
// program that captures itself stops directly after it has closed, before the other FIN arrives.
constexpr std::int64_t time_to_close_ns = 100'000'000;

}  // namespace

IwarpConnection::IwarpConnection(Shared& shared, const TcpEndpoints& endpoints)
    : shared_(shared),
      endpoints_(endpoints),
      a_(*this, Side::a, shared.search_budget),
      b_(*this, Side::b, shared.search_budget) {}

// The entry in `established` points to this object, so it must not outlive it.
IwarpConnection::~IwarpConnection() {
  if (connection_) shared_.established.erase(connection_->id);
}

// The request key is compared only; MpaReader checks the rest of the frame.
bool IwarpConnection::begins_with_request(Bytes payload) {
  return payload.size() >= wire::MpaFrame::header_bytes &&
         std::memcmp(payload.data(), request_key.data(), request_key.size()) == 0;
}

void IwarpConnection::on_start(Side side, bool from_the_start) {
  direction(side).from_the_start = from_the_start;
  direction(side).reader.start(from_the_start);
}

// Counts frames from the first packet on, because the connection may be recognised as MPA only
// later.
void IwarpConnection::on_packet(Side side, const Stamp& stamp) {
  if (frames_++ == 0) first_ = stamp;
  ++side_frames_[side == Side::a ? 0 : 1];
  last_ = stamp;
  if (connection_) {
    connection_->frames = frames_;
    connection_->side_frames = side_frames_;
    connection_->last = stamp;
  }
}

void IwarpConnection::on_bytes(Side side, const Stamp& stamp, std::uint64_t position, Bytes bytes) {
  direction(side).reader.on_bytes(stamp, position, bytes);
  check_interest();
}

void IwarpConnection::on_hole(Side side, const Stamp& stamp, std::uint64_t /*position*/,
                              const Hole& hole) {
  direction(side).lacks_bytes = true;
  direction(side).reader.on_hole(stamp, hole);
  check_interest();
}

void IwarpConnection::on_late(Side side, const Stamp& stamp, std::int64_t delay_ns) {
  if (connection_) shared_.sink.on_late(origin(side, stamp), delay_ns);
}

// Both directions must have the same protocol. If one gave up the search and the connection is not
// known to be MPA, the other one is given up as well.
void IwarpConnection::check_interest() {
  if (!connection_ && (a_.reader.gave_up() || b_.reader.gave_up())) {
    a_.reader.give_up();
    b_.reader.give_up();
    indifferent_ = true;
  }
}

void IwarpConnection::on_repeat(Side side, const Stamp& stamp, std::uint64_t bytes) {
  if (connection_) shared_.sink.on_repeat(origin(side, stamp), bytes);
}

void IwarpConnection::on_received(Side side, const Stamp& stamp, std::uint64_t position) {
  direction(side).received = position;
  if (decoder_) decoder_->on_received(side, position);
  if (connection_) shared_.sink.on_received(origin(side, stamp), position);
}

void IwarpConnection::on_window(Side side, const Stamp& stamp, bool open) {
  if (connection_) shared_.sink.on_window(origin(side, stamp), open);
}

void IwarpConnection::on_window_probe(Side side, const Stamp& stamp) {
  if (connection_) shared_.sink.on_window_probe(origin(side, stamp));
}

void IwarpConnection::on_path_change(Side side, const Stamp& stamp, const PathChange& change) {
  if (connection_) shared_.sink.on_path_change(origin(side, stamp), change);
}

// --- Begin ---------------------------------------------------------------------------------------

// Enters the connection into the table once it is known to be MPA, and reports what was lost
// before.
Connection& IwarpConnection::establish(Connection::Beginning beginning) {
  if (connection_) return *connection_;
  connection_ =
      &shared_.connections.add({.transport = Transport::iwarp,
                                .a = {.address = endpoints_.address_a, .number = endpoints_.port_a},
                                .b = {.address = endpoints_.address_b, .number = endpoints_.port_b},
                                .beginning = beginning,
                                .first = first_,
                                .last = last_,
                                .frames = frames_,
                                .side_frames = side_frames_});
  shared_.established.emplace(connection_->id, this);
  decoder_.emplace(connection_->id, shared_.sink);
  for (const Side side : {Side::a, Side::b}) {
    const std::uint64_t lost = direction(side).lost_before;
    if (lost > 0) decoder_->on_lost(side, first_, {lost, false});
    decoder_->on_received(side, direction(side).received);
  }
  return *connection_;
}

// Stores what an MPA request or reply offers (RFC 5044 §7.1, RFC 6581 for enhanced frames).
void IwarpConnection::on_frame(Side side, const wire::MpaFrameView& view, std::size_t cut_bytes) {
  Connection& connection = establish(Connection::Beginning::handshake);
  const wire::MpaFrame& frame = view.frame();
  if (frame.kind == wire::MpaKind::request) direction(side).requested = true;
  Connection::Offer& offer = connection.offer(side);
  offer.seen = true;
  offer.markers = frame.markers;
  offer.crc = frame.crc;
  offer.revision = frame.revision;
  // The depths are the first bytes of the private data, and the snap length may have cut them.
  const std::size_t there = frame.private_data_bytes - cut_bytes;
  if (const auto enhanced = view.enhanced(); enhanced && there >= wire::MpaEnhanced::header_bytes) {
    offer.has_depths = true;
    offer.ird = enhanced->ird;
    offer.ord = enhanced->ord;
  }
  const Bytes user = view.user_data().first(view.user_data().size() -
                                            std::min(view.user_data().size(), cut_bytes));
  offer.private_data.assign(user.begin(), user.end());
  if (frame.reject) connection.end = Connection::End::rejected;
  settle_control_words(side, frame, user);
  settle_framing();
}

// RFC 5044 §7.1: CRCs are used if either side requests them. A side's request for markers applies
// to the stream that it receives.
void IwarpConnection::settle_framing() {
  const auto& offer_a = connection_->offer_a;
  const auto& offer_b = connection_->offer_b;
  using Markers = MpaReader::Markers;
  if (offer_a.seen) b_.reader.set_markers(offer_a.markers ? Markers::on : Markers::off);
  if (offer_b.seen) a_.reader.set_markers(offer_b.markers ? Markers::on : Markers::off);
  connection_->crc = offer_a.crc || offer_b.crc;
  settle_depths();
  // Until both offers are known, the other side may still request CRCs.
  if (!connection_->crc && !(offer_a.seen && offer_b.seen)) return;
  const auto crc = connection_->crc ? MpaReader::Crc::on : MpaReader::Crc::off;
  a_.reader.set_crc(crc);
  b_.reader.set_crc(crc);
}

// RFC 6581 §9.1: a side has no more requests under way than the other side accepts.
void IwarpConnection::settle_depths() {
  const auto& offer_a = connection_->offer_a;
  const auto& offer_b = connection_->offer_b;
  if (!offer_a.has_depths || !offer_b.has_depths) return;
  const auto depth = [](std::uint16_t ord, std::uint16_t ird) -> std::size_t {
    const bool negotiated =
        ord != wire::MpaEnhanced::no_negotiation && ird != wire::MpaEnhanced::no_negotiation;
    return negotiated ? std::min(ord, ird) : 0;
  };
  decoder_->set_depth(Side::a, depth(offer_a.ord, offer_b.ird));
  decoder_->set_depth(Side::b, depth(offer_b.ord, offer_a.ird));
}

// Two Weft devices write control words to an STag that a hello in the private data names, or with
// rdma_cm to the agreed one.
void IwarpConnection::settle_control_words(Side side, const wire::MpaFrame& frame,
                                           Bytes private_data) {
  if (const auto hello = wire::Hello::parse(private_data)) {
    return decoder_->set_control_stag(other(side), hello->control_stag);
  }
  const auto mark =
      frame.kind == wire::MpaKind::request ? wire::MpaMark::request : wire::MpaMark::reply;
  direction(side).offers_words = frame.words && frame.mark == mark;
  if (!a_.offers_words || !b_.offers_words) return;
  decoder_->set_control_stag(Side::a, wire::agreed_control_stag);
  decoder_->set_control_stag(Side::b, wire::agreed_control_stag);
}

void IwarpConnection::on_fpdu(Side side, const Fpdu& fpdu) {
  decoder_->on_fpdu(side, fpdu);
  connection_->control_words = decoder_->control_words();
}

// FPDUs were found in the stream without a handshake. What was sent before them is unknown.
void IwarpConnection::on_found(Side side, bool crc_good) {
  establish(Connection::Beginning::traffic);
  if (direction(side).from_the_start)
    decoder_->begin_late(side);
  else
    decoder_->begin_in_mid_stream(side);
  if (!crc_good) return;
  // CRCs are used in both directions or in none, so one correct CRC decides for both readers.
  connection_->crc = true;
  a_.reader.set_crc(MpaReader::Crc::on);
  b_.reader.set_crc(MpaReader::Crc::on);
}

// --- End -----------------------------------------------------------------------------------------

// Handles the FIN of one side. The connection is over with the second one.
void IwarpConnection::on_finished(Side side, const Stamp& stamp) {
  if (!finished_a_ && !finished_b_) finished_ns_ = stamp.time_ns;
  (side == Side::a ? finished_a_ : finished_b_) = true;
  direction(side).reader.finish(stamp, was_terminated());
  if (!connection_ || over_ || !finished_a_ || !finished_b_) return;
  over_ = true;
  if (connection_->end == Connection::End::open) connection_->end = Connection::End::closed;
  // After a Terminate the sides close the TCP connection too, so the Terminate is the better
  // reason.
  if (decoder_->terminated()) connection_->end = Connection::End::terminated;
  shared_.sink.on_end(origin(side, stamp), false);
}

// A reset throws away what was not sent yet.
void IwarpConnection::on_reset(Side side, const Stamp& stamp) {
  a_.reader.finish(stamp, true);
  b_.reader.finish(stamp, true);
  if (!connection_ || over_) return;
  over_ = true;
  // A rejection and a Terminate are better reasons than the reset that follows them.
  if (decoder_->terminated()) {
    connection_->end = Connection::End::terminated;
  } else if (connection_->end != Connection::End::rejected) {
    connection_->end = Connection::End::reset;
  }
  shared_.sink.on_end(origin(side, stamp), true);
}

// A request was sent, and nothing came back: also nothing that the capture lacks.
bool IwarpConnection::is_unanswered() const {
  if (a_.requested == b_.requested || decoder_->saw_fpdus()) return false;
  const bool answered = connection_->offer_a.seen && connection_->offer_b.seen;
  return !answered && !(a_.requested ? b_ : a_).lacks_bytes;
}

// Handles the end of the trace. It decides between unanswered, half-open and open.
void IwarpConnection::on_end(const Stamp& stamp) {
  // Neither reader has any bytes left once the connection has been given up.
  if (indifferent_) return;
  a_.reader.finish(stamp, was_terminated());
  b_.reader.finish(stamp, was_terminated());
  if (!connection_ || over_) return;
  over_ = true;
  Connection::End& end = connection_->end;
  if (end != Connection::End::open) return;
  if (decoder_->terminated()) {
    end = Connection::End::terminated;
  } else if (is_unanswered()) {
    end = Connection::End::unanswered;
  } else if ((finished_a_ || finished_b_) && stamp.time_ns >= finished_ns_ + time_to_close_ns) {
    end = Connection::End::half_open;
  }
}

}  // namespace weft::capture
