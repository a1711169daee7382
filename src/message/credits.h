// Credits: how many frames each side of a connection may send, and the receives that are kept for
// UPDATE frames. Pure arithmetic; docs/message-protocol.md has the rules.
#pragma once

#include <algorithm>
#include <cstdint>

#include "message/frame_wire.h"

namespace weft::message::detail {

// Not thread-safe.
class Credits {
 public:
  // Receives beyond the credits, for UPDATE frames.
  static constexpr std::uint32_t update_receives = 4;

  // The credits that each side grants the other at the beginning.
  Credits(std::uint16_t ours, std::uint16_t peers) : ours_(ours), peers_(peers), left_(peers) {}

  // --- Credits of this side, granted by the peer
  [[nodiscard]] bool can_send() const { return left_ > 0; }
  void spend() { --left_; }
  [[nodiscard]] bool can_update() const { return updates_sent_ - confirmed_ < update_receives; }
  // Counts an UPDATE that is sent now. True if no further one may be sent before the peer answers.
  [[nodiscard]] bool spend_update() { return ++updates_sent_ - confirmed_ == update_receives; }
  // Takes what a frame of the peer grants and confirms. False if it is more than was used.
  [[nodiscard]] bool earn(std::uint16_t credits, Count updates) {
    if (credits > peers_ - left_ || updates - confirmed_ > updates_sent_ - confirmed_) return false;
    left_ += credits;
    confirmed_ = updates;
    return true;
  }

  // --- Credits of the peer, granted by this side
  // A frame has arrived. False if the peer had no right to send it.
  [[nodiscard]] bool take_data() { return ++taken_ <= ours_; }
  [[nodiscard]] bool take_update() {
    return ++updates_taken_ - updates_reported_ <= update_receives;
  }
  // A receive is posted in the place of one that a data frame has used.
  void restore() { ++due_; }
  // Half of the credits can be granted again.
  [[nodiscard]] bool grant_due() const { return due_ >= std::max(ours_ / 2, 1); }
  // Some can be granted, and the peer has none left.
  [[nodiscard]] bool peer_waits() const { return due_ > 0 && taken_ >= ours_; }
  // The credits to grant with the frame that is sent now.
  [[nodiscard]] std::uint16_t grant() {
    const std::uint16_t granted = due_;
    taken_ -= due_;
    due_ = 0;
    return granted;
  }
  // The count of UPDATEs to confirm with that frame.
  [[nodiscard]] Count report_updates() { return updates_reported_ = updates_taken_; }

 private:
  std::uint16_t ours_;
  std::uint16_t peers_;
  std::uint32_t left_;  // that this side may still spend
  Count updates_sent_ = 0;
  Count confirmed_ = 0;      // of these, whose receives the peer has posted again
  std::uint32_t taken_ = 0;  // spent by the peer, and not granted again
  std::uint16_t due_ = 0;    // of these, whose receives are posted again
  Count updates_taken_ = 0;
  Count updates_reported_ = 0;
};

}  // namespace weft::message::detail
