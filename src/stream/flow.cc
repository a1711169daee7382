#include "stream/flow.h"

#include <algorithm>

namespace weft::stream::detail {
namespace {

std::uint32_t advance(std::uint32_t at, std::uint32_t bytes, std::uint32_t ring) {
  at += bytes;
  return at == ring ? 0 : at;
}

// Half of it, so that the other half keeps the peer going meanwhile.
std::uint32_t due_at(std::uint32_t all, std::uint32_t most) {
  return std::clamp(all / 2, 1U, most);
}

}  // namespace

Flow::Flow(const FlowSizes& sizes)
    : sizes_(sizes),
      peer_free_(sizes.peer_ring_bytes),
      peer_credits_(sizes.peer_receives),
      bytes_due_(due_at(sizes.receive_ring_bytes, most_returned_bytes)),
      receives_due_(due_at(sizes.receives, most_returned_receives)) {}

// --- Sending -------------------------------------------------------------------------------------

Piece Flow::take_direct(std::uint32_t wanted) {
  if (!can_send_direct()) return {};
  const std::uint32_t to_end = sizes_.peer_ring_bytes - peer_at_;
  const Piece piece{0, peer_at_, std::min({wanted, peer_free_, to_end, most_piece_bytes})};
  if (piece.bytes == 0) return {};
  peer_at_ = advance(peer_at_, piece.bytes, sizes_.peer_ring_bytes);
  peer_free_ -= piece.bytes;
  --peer_credits_;
  ++sends_;
  return piece;
}

Piece Flow::take(std::uint32_t wanted) {
  const std::uint32_t free = sizes_.send_ring_bytes - held_;
  const std::uint32_t to_end = sizes_.send_ring_bytes - held_at_;
  Piece piece = take_direct(std::min({wanted, free, to_end}));
  if (piece.bytes == 0) return {};
  piece.from = held_at_;
  held_at_ = advance(held_at_, piece.bytes, sizes_.send_ring_bytes);
  held_ += piece.bytes;
  return piece;
}

Piece Flow::take_aside(std::uint32_t wanted) {
  const std::uint32_t free = sizes_.send_ring_bytes - held_;
  const std::uint32_t to_end = sizes_.send_ring_bytes - held_at_;
  const Piece piece{held_at_, 0, std::min({wanted, free, to_end, most_piece_bytes})};
  if (piece.bytes == 0 || sends_ >= sizes_.sends || end_wanted_) return {};
  held_at_ = advance(held_at_, piece.bytes, sizes_.send_ring_bytes);
  held_ += piece.bytes;
  ++sends_;
  return piece;
}

bool Flow::take_message() {
  if (!can_send_message()) return false;
  --peer_credits_;
  ++sends_;
  return true;
}

void Flow::sent(std::uint32_t held) {
  held_ -= held;
  --sends_;
}

// --- Control -------------------------------------------------------------------------------------

std::uint32_t Flow::make_update() {
  const Update update{std::min(owed_bytes_, most_returned_bytes),
                      std::min(owed_receives_, most_returned_receives), owed_acknowledgements_};
  owed_bytes_ -= update.bytes;
  owed_receives_ -= update.receives;
  owed_acknowledgements_ = 0;
  ++unacknowledged_;
  return encode(update);
}

std::optional<std::uint32_t> Flow::next_control() {
  if (control_sends_ == most_control_sends) return std::nullopt;
  std::optional<std::uint32_t> word;
  if (update_due() && unacknowledged_ < update_window) {
    word = make_update();
  } else if (acknowledgement_due()) {
    word = encode(Update{.acknowledged = owed_acknowledgements_});
    owed_acknowledgements_ = 0;
  } else if (end_wanted_ && !end_sent_) {
    end_sent_ = true;
    word = encode(Kind::end, 0);
  }
  if (word) ++control_sends_;
  return word;
}

// --- Receiving -----------------------------------------------------------------------------------

bool Flow::received(std::uint32_t word, std::optional<std::uint32_t> bytes) {
  if (is_update(word)) return bytes.value_or(0) == 0 && received_update(update_of(word));
  if (end_seen_) return false;
  switch (kind_of(word)) {
    case Kind::data:
      return bytes.value_or(value_of(word)) == value_of(word) && received_data(value_of(word));
    case Kind::end:
      end_seen_ = value_of(word) == 0 && bytes.value_or(0) == 0;
      return end_seen_;
    case Kind::map:
      ++owed_receives_;
      return true;
  }
  return false;
}

bool Flow::received_data(std::uint32_t bytes) {
  // What was read and not told yet is still the reader's.
  const std::uint32_t free = sizes_.receive_ring_bytes - unread_ - owed_bytes_;
  const std::uint32_t to_end = sizes_.receive_ring_bytes - write_at_;
  if (bytes == 0 || bytes > free || bytes > to_end) return false;
  write_at_ = advance(write_at_, bytes, sizes_.receive_ring_bytes);
  unread_ += bytes;
  ++owed_receives_;
  return true;
}

bool Flow::received_update(const Update& update) {
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

std::uint32_t Flow::readable_at_once() const {
  return std::min(unread_, sizes_.receive_ring_bytes - read_at_);
}

void Flow::read(std::uint32_t bytes) {
  read_at_ = advance(read_at_, bytes, sizes_.receive_ring_bytes);
  unread_ -= bytes;
  owed_bytes_ += bytes;
}

}  // namespace weft::stream::detail
