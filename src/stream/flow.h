// Rings and credits of one stream, without I/O: which bytes may go where, and what has to be told
// to the other side. The owner copies, posts and polls, and keeps the order in which it is told to.
//
// Each side has a ring that the other writes into, and posts as many receives as it has told the
// other, plus `control_receives`. Data uses one of the told ones for each message; what it used,
// and the ring space that was read, come back in updates. Updates have receives of their own: at
// most `update_window` of them are not acknowledged, an acknowledgement travels in an update of the
// other direction or, where the window is full, alone; the end has one too. So no message ever
// meets a side without a receive, and nothing that frees the one direction waits for the other.
#pragma once

#include <cstdint>
#include <optional>

#include "stream/word_wire.h"

namespace weft::stream::detail {

inline constexpr std::uint32_t update_window = 2;
// For updates, one acknowledgement that travels alone, and the end.
inline constexpr std::uint32_t control_receives = update_window + 2;
// Control messages in our send queue at once; more wait for their completions.
inline constexpr std::uint32_t most_control_sends = 8;
// A piece that is being copied cannot travel yet: long ones are cut.
inline constexpr std::uint32_t most_piece_bytes = 256 * 1024;

struct FlowSizes {
  std::uint32_t send_ring_bytes = 0;
  std::uint32_t sends = 0;  // data messages that may be in our send queue
  std::uint32_t peer_ring_bytes = 0;
  std::uint32_t peer_receives = 0;  // for data
  std::uint32_t receive_ring_bytes = 0;
  std::uint32_t receives = 0;  // for data
};

// Bytes that may be sent as one message: from where in our ring to where in the peer's.
struct Piece {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t bytes = 0;
};

class Flow {
 public:
  explicit Flow(const FlowSizes& sizes);

  // --- Sending
  [[nodiscard]] bool can_send() const {
    return can_send_direct() && held_ < sizes_.send_ring_bytes;
  }
  // The same for bytes that do not go through our ring.
  [[nodiscard]] bool can_send_direct() const { return peer_free_ > 0 && can_send_message(); }
  // For a message without bytes in the peer's ring.
  [[nodiscard]] bool can_send_message() const {
    return peer_credits_ > 0 && sends_ < sizes_.sends && !end_wanted_;
  }
  // For bytes that go past the peer's ring.
  [[nodiscard]] bool can_send_aside() const {
    return held_ < sizes_.send_ring_bytes && sends_ < sizes_.sends && !end_wanted_;
  }
  // Takes what is needed for at most `wanted` bytes, and says where they go. No bytes: not now.
  [[nodiscard]] Piece take(std::uint32_t wanted);
  [[nodiscard]] Piece take_direct(std::uint32_t wanted);
  [[nodiscard]] bool take_message();
  [[nodiscard]] Piece take_aside(std::uint32_t wanted);
  // A data message has completed; `held` bytes of our ring are free again.
  void sent(std::uint32_t held);
  // Nothing follows: the end is told as soon as possible.
  void finish() { end_wanted_ = true; }
  [[nodiscard]] bool finished() const { return end_wanted_; }
  // No data message of ours is under way.
  [[nodiscard]] bool idle() const { return sends_ == 0; }
  // Everything has completed that was to be sent, and the end with it.
  [[nodiscard]] bool all_sent() const {
    return sends_ == 0 && control_sends_ == 0 && (!end_wanted_ || end_sent_);
  }

  // --- Control
  // The next control message to send, if one is due and may be sent.
  [[nodiscard]] std::optional<std::uint32_t> next_control();
  void control_sent() { --control_sends_; }
  // Something is due and has to wait.
  [[nodiscard]] bool control_waits() const {
    return update_due() || acknowledgement_due() || (end_wanted_ && !end_sent_);
  }

  // --- Receiving
  // A message has come, and its receive is posted again. `bytes` is what the transport says was
  // written, where it says so. False where the peer breaks the rules; nothing was changed then.
  [[nodiscard]] bool received(std::uint32_t word, std::optional<std::uint32_t> bytes = {});
  [[nodiscard]] std::uint32_t readable() const { return unread_; }
  // The first byte that was not read yet, and how many follow it without a wrap.
  [[nodiscard]] std::uint32_t read_at() const { return read_at_; }
  [[nodiscard]] std::uint32_t readable_at_once() const;
  void read(std::uint32_t bytes);
  [[nodiscard]] bool end_seen() const { return end_seen_; }

  // --- For whoever wants to know
  [[nodiscard]] std::uint32_t peer_free() const { return peer_free_; }
  [[nodiscard]] std::uint32_t peer_credits() const { return peer_credits_; }
  [[nodiscard]] const FlowSizes& sizes() const { return sizes_; }

 private:
  [[nodiscard]] bool update_due() const {
    return owed_bytes_ >= bytes_due_ || owed_receives_ >= receives_due_;
  }
  [[nodiscard]] bool acknowledgement_due() const { return owed_acknowledgements_ == update_window; }
  [[nodiscard]] std::uint32_t make_update();
  [[nodiscard]] bool received_update(const Update& update);
  [[nodiscard]] bool received_data(std::uint32_t bytes);

  FlowSizes sizes_;

  std::uint32_t held_at_ = 0;  // where the next byte goes in our ring
  std::uint32_t held_ = 0;     // bytes in our ring that have not completed
  std::uint32_t sends_ = 0;
  std::uint32_t peer_at_ = 0;  // where the next byte goes in the peer's ring
  std::uint32_t peer_free_;
  std::uint32_t peer_credits_;
  bool end_wanted_ = false;
  bool end_sent_ = false;

  std::uint32_t control_sends_ = 0;
  std::uint32_t unacknowledged_ = 0;  // updates of ours
  std::uint32_t owed_acknowledgements_ = 0;

  std::uint32_t write_at_ = 0;  // where the peer's next byte comes
  std::uint32_t read_at_ = 0;
  std::uint32_t unread_ = 0;
  std::uint32_t owed_bytes_ = 0;
  std::uint32_t owed_receives_ = 0;
  std::uint32_t bytes_due_;
  std::uint32_t receives_due_;
  bool end_seen_ = false;
};

}  // namespace weft::stream::detail
