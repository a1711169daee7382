#include "stream/flow_control.h"

#include <algorithm>

namespace weft::stream::detail {
namespace {

// Messages do not cross the end of a ring, so `at` reaches it exactly.
std::uint32_t advance(std::uint32_t at, std::uint32_t bytes, std::uint32_t ring) {
  at += bytes;
  return at == ring ? 0 : at;
}

// An update is sent when half of `all` is owed: the peer can use the other half until it arrives.
// `max` is what one update can return.
std::uint32_t update_threshold(std::uint32_t all, std::uint32_t max) {
  return std::clamp(all / 2, 1U, max);
}

}  // namespace

FlowControl::FlowControl(const FlowSizes& sizes)
    : sizes_(sizes),
      peer_free_(sizes.peer_ring_bytes),
      peer_credits_(sizes.peer_receives),
      bytes_threshold_(update_threshold(sizes.receive_ring_bytes, max_returned_bytes)),
      receives_threshold_(update_threshold(sizes.receives, max_returned_receives)) {}

// --- Sending -------------------------------------------------------------------------------------

Piece FlowControl::take_direct(std::uint32_t wanted) {
  if (!can_send_direct()) return {};
  const std::uint32_t to_end = sizes_.peer_ring_bytes - peer_at_;
  const Piece piece{0, peer_at_, std::min({wanted, peer_free_, to_end, max_piece_bytes})};
  if (piece.bytes == 0) return {};
  peer_at_ = advance(peer_at_, piece.bytes, sizes_.peer_ring_bytes);
  peer_free_ -= piece.bytes;
  --peer_credits_;
  ++sends_;
  return piece;
}

Piece FlowControl::take(std::uint32_t wanted) {
  const std::uint32_t free = sizes_.send_ring_bytes - ring_used_;
  const std::uint32_t to_end = sizes_.send_ring_bytes - ring_at_;
  Piece piece = take_direct(std::min({wanted, free, to_end}));
  if (piece.bytes == 0) return {};
  piece.from = ring_at_;
  ring_at_ = advance(ring_at_, piece.bytes, sizes_.send_ring_bytes);
  ring_used_ += piece.bytes;
  return piece;
}

Piece FlowControl::take_mapped(std::uint32_t wanted) {
  const std::uint32_t free = sizes_.send_ring_bytes - ring_used_;
  const std::uint32_t to_end = sizes_.send_ring_bytes - ring_at_;
  const Piece piece{ring_at_, 0, std::min({wanted, free, to_end, max_piece_bytes})};
  if (piece.bytes == 0 || sends_ >= sizes_.sends || end_requested_) return {};
  ring_at_ = advance(ring_at_, piece.bytes, sizes_.send_ring_bytes);
  ring_used_ += piece.bytes;
  ++sends_;
  return piece;
}

bool FlowControl::take_message() {
  if (!can_send_message()) return false;
  --peer_credits_;
  ++sends_;
  return true;
}

void FlowControl::sent(std::uint32_t ring_bytes) {
  ring_used_ -= ring_bytes;
  --sends_;
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
  if (update_due() && unacknowledged_ < update_window) {
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

// After the end only updates may come: the other direction goes on.
bool FlowControl::received(std::uint32_t word, std::optional<std::uint32_t> bytes) {
  if (is_update(word)) return bytes.value_or(0) == 0 && received_update(update_of(word));
  if (end_received_) return false;
  switch (kind_of(word)) {
    case Kind::data:
      return bytes.value_or(value_of(word)) == value_of(word) && received_data(value_of(word));
    case Kind::end:
      end_received_ = value_of(word) == 0 && bytes.value_or(0) == 0;
      return end_received_;
    case Kind::map:
      ++owed_receives_;
      return true;
  }
  return false;
}

bool FlowControl::received_data(std::uint32_t bytes) {
  // Bytes that were read but not returned in an update are not free for the peer yet.
  const std::uint32_t free = sizes_.receive_ring_bytes - unread_ - owed_bytes_;
  const std::uint32_t to_end = sizes_.receive_ring_bytes - write_at_;
  if (bytes == 0 || bytes > free || bytes > to_end) return false;
  write_at_ = advance(write_at_, bytes, sizes_.receive_ring_bytes);
  unread_ += bytes;
  ++owed_receives_;
  return true;
}

// An update may return only what was used, and acknowledge only what was sent. The peer may have at
// most update_window updates unacknowledged; an acknowledgement that travels alone is not counted.
bool FlowControl::received_update(const Update& update) {
  const bool alone = update.bytes == 0 && update.receives == 0;
  if (update.bytes > sizes_.peer_ring_bytes - peer_free_ ||
      update.receives > sizes_.peer_receives - peer_credits_ ||
      update.acknowledged > unacknowledged_ ||
      (alone ? update.acknowledged == 0 : owed_acknowledgements_ == update_window)) {
    return false;
  }
  peer_free_ += update.bytes;
  peer_credits_ += update.receives;
  unacknowledged_ -= update.acknowledged;
  if (!alone) ++owed_acknowledgements_;
  return true;
}

std::uint32_t FlowControl::readable_at_once() const {
  return std::min(unread_, sizes_.receive_ring_bytes - read_at_);
}

void FlowControl::read(std::uint32_t bytes) {
  read_at_ = advance(read_at_, bytes, sizes_.receive_ring_bytes);
  unread_ -= bytes;
  owed_bytes_ += bytes;
}

}  // namespace weft::stream::detail
