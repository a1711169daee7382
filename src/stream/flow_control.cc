#include "stream/flow_control.h"

#include <algorithm>
#include <bit>

namespace weft::stream::detail {
namespace {

// Messages do not cross the end of a ring, so `at` reaches it exactly.
std::uint32_t advance(std::uint32_t at, std::uint32_t bytes, std::uint32_t ring) {
  at += bytes;
  return at == ring ? 0 : at;
}

// 0 is a peer without parts: it uses the whole ring from the beginning.
std::uint32_t part_of(std::uint32_t part, std::uint32_t ring) {
  return part == 0 ? ring : std::min(part, ring);
}

// An update is sent when half of `all` is owed: the peer can use the other half until it arrives.
// `max` is what one update can return.
std::uint32_t update_threshold(std::uint32_t all, std::uint32_t max) {
  return std::clamp(all / 2, 1U, max);
}

}  // namespace

FlowControl::FlowControl(const FlowSizes& sizes)
    : sizes_(sizes),
      own_ring_(part_of(sizes.send_part_bytes, sizes.send_ring_bytes), sizes.send_ring_bytes),
      peer_ring_(part_of(sizes.peer_part_bytes, sizes.peer_ring_bytes), sizes.peer_ring_bytes),
      peer_credits_(sizes.peer_receives),
      receive_part_bytes_(part_of(sizes.receive_part_bytes, sizes.receive_ring_bytes)),
      bytes_threshold_(update_threshold(receive_part_bytes_, max_returned_bytes)),
      receives_threshold_(update_threshold(sizes.receives, max_returned_receives)) {}

// --- Sending -------------------------------------------------------------------------------------

Piece FlowControl::take_direct(std::uint32_t wanted) {
  if (!can_send_message()) return {};
  // A piece ends with the ring, because a write has one target.
  const std::uint32_t bytes = peer_ring_.fitting(std::min(wanted, max_piece_bytes));
  if (bytes == 0) return {};
  --peer_credits_;
  ++sends_;
  return {0, peer_ring_.take(bytes), bytes};
}

// Our own ring grows without a message: the peer does not see it.
Piece FlowControl::take(std::uint32_t wanted) {
  if (!can_send_message()) return {};
  if (own_ring_.can_grow()) own_ring_.grow();
  Piece piece = take_direct(own_ring_.fitting(wanted));
  if (piece.bytes > 0) piece.from = own_ring_.take(piece.bytes);
  return piece;
}

// Needs a place in the send queue and bytes to copy from, but no receive and no room in the peer's
// ring.
Piece FlowControl::take_mapped(std::uint32_t wanted) {
  if (sends_ >= sizes_.sends || end_requested_) return {};
  if (own_ring_.can_grow()) own_ring_.grow();
  const std::uint32_t bytes = own_ring_.fitting(std::min(wanted, max_piece_bytes));
  if (bytes == 0) return {};
  ++sends_;
  return {own_ring_.take(bytes), 0, bytes};
}

bool FlowControl::take_message() {
  if (!can_send_message()) return false;
  --peer_credits_;
  ++sends_;
  return true;
}

std::optional<std::uint32_t> FlowControl::take_growth() {
  if (!can_grow() || !take_message()) return std::nullopt;
  peer_ring_.grow();
  return encode(Kind::grow, peer_ring_.part_bytes());
}

// A message that is under way holds bytes of our own ring, and so does a mapped write.
std::optional<std::uint32_t> FlowControl::start_placing() {
  if (placing_ || own_ring_.used_bytes() > 0 || !take_message()) return std::nullopt;
  placing_ = true;
  return encode(Kind::place, 0);
}

Piece FlowControl::take_placed(std::uint32_t wanted, bool& grown) {
  (void)peer_ring_.fitting(wanted);  // notes a part that is too small
  if (!can_place()) return {};
  grown = peer_ring_.can_grow();
  if (grown) peer_ring_.grow();
  const std::uint32_t bytes = std::min(peer_ring_.fitting(wanted), max_placed_bytes);
  return {0, peer_ring_.take(bytes), bytes};
}

bool FlowControl::take_place() {
  if (sends_ >= sizes_.sends) return false;
  ++sends_;
  return true;
}

void FlowControl::sent(std::uint32_t ring_bytes, std::uint32_t messages) {
  own_ring_.give_back(ring_bytes);
  sends_ -= messages;
  completed_ += messages;
}

// --- Control -------------------------------------------------------------------------------------

// Returns all that is owed, as far as it fits into one update.
std::uint32_t FlowControl::make_update() {
  const Update update{std::min(owed_bytes_, max_returned_bytes),
                      std::min(owed_receives_, max_returned_receives), owed_acknowledgements_};
  owed_bytes_ -= update.bytes;
  owed_receives_ -= update.receives;
  owed_acknowledgements_ = 0;
  ++unacknowledged_;
  return encode(update);
}

// An acknowledgement travels alone only while the window forbids an update: otherwise the next
// update carries it. The end comes last, because nothing may follow it but updates.
std::optional<std::uint32_t> FlowControl::next_control() {
  if (control_sends_ == max_control_sends) return std::nullopt;
  std::optional<std::uint32_t> word;
  if (wakes_due_ != 0) {
    const auto wake = static_cast<unsigned>(std::countr_zero(wakes_due_));
    // Removes the lowest bit: each wake is sent once.
    wakes_due_ &= wakes_due_ - 1;
    word = encode(Kind::wake, wake);
  } else if (update_due() && unacknowledged_ < update_window) {
    word = make_update();
  } else if (acknowledgement_due()) {
    word = encode(Update{.acknowledged = owed_acknowledgements_});
    owed_acknowledgements_ = 0;
  } else if (end_requested_ && !end_sent_) {
    end_sent_ = true;
    word = encode(Kind::end, 0);
  }
  if (word) ++control_sends_;
  return word;
}

// --- Receiving -----------------------------------------------------------------------------------

// After the end only updates may come: the other direction goes on. Neither needs a receive that
// was announced for data; every other message does.
bool FlowControl::received(std::uint32_t word, std::optional<std::uint32_t> bytes) {
  if (is_update(word)) return bytes.value_or(0) == 0 && received_update(update_of(word));
  if (kind_of(word) == Kind::wake) {
    return bytes.value_or(0) == 0 && value_of(word) <= static_cast<unsigned>(Wake::room);
  }
  // After its end the peer may send nothing that needs a receive.
  if (end_received_) return false;
  if (kind_of(word) == Kind::end) {
    end_received_ = value_of(word) == 0 && bytes.value_or(0) == 0;
    return end_received_;
  }
  if (owed_receives_ == sizes_.receives) return false;  // one more than were announced
  switch (kind_of(word)) {
    case Kind::data:
      return bytes.value_or(value_of(word)) == value_of(word) && received_data(value_of(word));
    case Kind::end:
      break;
    case Kind::map:
      ++owed_receives_;
      return true;
    case Kind::grow:
      return bytes.value_or(0) == 0 && received_growth(value_of(word));
    case Kind::place:
      return bytes.value_or(0) == 0 && value_of(word) == 0 && received_place();
    case Kind::wake:
      break;
  }
  return false;
}

bool FlowControl::received_data(std::uint32_t bytes) {
  // Bytes that were read but not returned in an update are not free for the peer yet.
  const std::uint32_t free = receive_part_bytes_ - unread_ - owed_bytes_;
  const std::uint32_t to_end = receive_part_bytes_ - write_at_;
  if (peer_places_ || bytes == 0 || bytes > free || bytes > to_end) return false;
  write_at_ = advance(write_at_, bytes, receive_part_bytes_);
  unread_ += bytes;
  ++owed_receives_;
  return true;
}

// The peer goes on behind the part that was used, instead of at the beginning of the ring. If all
// of that part was read, the next unread byte comes there as well.
bool FlowControl::received_growth(std::uint32_t bytes) {
  if (peer_places_ || write_at_ != 0 || bytes <= receive_part_bytes_ ||
      bytes > sizes_.receive_ring_bytes) {
    return false;
  }
  extend_part(bytes);
  ++owed_receives_;
  return true;
}

void FlowControl::extend_part(std::uint32_t bytes) {
  write_at_ = receive_part_bytes_;
  if (unread_ == 0) read_at_ = write_at_;
  receive_part_bytes_ = bytes;
  bytes_threshold_ = update_threshold(bytes, max_returned_bytes);
}

// The counter of bytes that were read replaces updates of bytes.
bool FlowControl::received_place() {
  if (peer_places_) return false;
  peer_places_ = true;
  owed_bytes_ = 0;
  ++owed_receives_;
  return true;
}

std::uint32_t FlowControl::received_placed(std::uint64_t bytes) {
  const std::uint32_t to_end = receive_part_bytes_ - write_at_;
  // Up to the end of the part; the caller comes again for what continues behind it.
  const auto counted = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, to_end));
  if (counted > receive_part_bytes_ - unread_) return 0;
  write_at_ = advance(write_at_, counted, receive_part_bytes_);
  unread_ += counted;
  return counted;
}

// Both sides double the part, so the peer sends nothing but the position.
bool FlowControl::received_placed_growth() {
  const std::uint32_t ring = sizes_.receive_ring_bytes;
  if (write_at_ != 0 || receive_part_bytes_ >= ring) return false;
  extend_part(doubled(receive_part_bytes_, ring));
  return true;
}

// An update may return only what was used, and acknowledge only what was sent. The peer may have at
// most update_window updates unacknowledged; an acknowledgement that travels alone is not counted.
bool FlowControl::received_update(const Update& update) {
  const bool alone = update.bytes == 0 && update.receives == 0;
  const std::uint32_t bytes = placing_ ? 0 : update.bytes;  // sent before the peer knew
  if (bytes > peer_ring_.used_bytes() || update.receives > sizes_.peer_receives - peer_credits_ ||
      update.acknowledged > unacknowledged_ ||
      (alone ? update.acknowledged == 0 : owed_acknowledgements_ == update_window)) {
    return false;
  }
  peer_ring_.give_back(bytes);
  peer_credits_ += update.receives;
  unacknowledged_ -= update.acknowledged;
  if (!alone) ++owed_acknowledgements_;
  return true;
}

FlowControl::Unread FlowControl::unread(std::uint32_t skipped) const {
  const std::uint32_t to_end = receive_part_bytes_ - read_at_;
  const std::uint32_t at = skipped < to_end ? read_at_ + skipped : skipped - to_end;
  return {at, std::min(unread_ - skipped, receive_part_bytes_ - at)};
}

void FlowControl::read(std::uint32_t bytes) {
  read_at_ = advance(read_at_, bytes, receive_part_bytes_);
  unread_ -= bytes;
  if (!peer_places_) owed_bytes_ += bytes;
}

}  // namespace weft::stream::detail
