// Who may send how much: the credits of both directions, and the receives kept for UPDATE frames.
// Numbers only; docs/message-protocol.md has the rules.
#pragma once

#include <algorithm>
#include <cstdint>

#include "message/frame_wire.h"

namespace weft::message::detail {

class Credits {
 public:
  // Receives beyond the credits, for UPDATE frames.
  static constexpr std::uint32_t update_receives = 4;

  // What each side grants the other at the beginning.
  Credits(std::uint16_t ours, std::uint16_t peers) : ours_(ours), peers_(peers), left_(peers) {}

  // --- What the peer grants us.
  [[nodiscard]] bool can_send() const { return left_ > 0; }
  void spend() { --left_; }
  [[nodiscard]] bool can_update() const { return updates_sent_ - confirmed_ < update_receives; }
  // The UPDATE that is sent now is the last one before the peer has to answer.
  [[nodiscard]] bool spend_update() { return ++updates_sent_ - confirmed_ == update_receives; }
  // What a frame of the peer says. False where it cannot be.
  [[nodiscard]] bool earn(std::uint16_t credits, Count updates) {
    if (credits > peers_ - left_ || updates - confirmed_ > updates_sent_ - confirmed_) return false;
    left_ += credits;
    confirmed_ = updates;
    return true;
  }

  // --- What we grant the peer.
  // A frame has come. False where the peer had no right to send it.
  [[nodiscard]] bool take_data() { return ++taken_ <= ours_; }
  [[nodiscard]] bool take_update() { return ++updates_taken_ - updates_told_ <= update_receives; }
  // A receive is there again for the place of one that was taken.
  void restore() { ++due_; }
  // Half of them wait to be granted.
  [[nodiscard]] bool grant_due() const { return due_ >= std::max(ours_ / 2, 1); }
  // Some do, and the peer has none left.
  [[nodiscard]] bool peer_waits() const { return due_ > 0 && taken_ >= ours_; }
  // For the frame that is sent now.
  [[nodiscard]] std::uint16_t grant() {
    const std::uint16_t granted = due_;
    taken_ -= due_;
    due_ = 0;
    return granted;
  }
  [[nodiscard]] Count tell_updates() { return updates_told_ = updates_taken_; }

 private:
  std::uint16_t ours_;
  std::uint16_t peers_;
  std::uint32_t left_;
  Count updates_sent_ = 0;
  Count confirmed_ = 0;
  std::uint32_t taken_ = 0;  // by the peer, and not granted again
  std::uint16_t due_ = 0;    // of these, ready to be granted
  Count updates_taken_ = 0;
  Count updates_told_ = 0;
};

}  // namespace weft::message::detail
