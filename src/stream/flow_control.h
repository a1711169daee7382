// FlowControl: positions in the rings and credits of one stream, without I/O. It decides which
// bytes may be sent to where, and which control messages are due. The owner copies, posts and
// polls, and must send messages in the order in which it took them from here.
//
// The rules are those of docs/stream-protocol.md: each side has a ring that the peer writes to, and
// posts the receives for data that it has announced, plus `control_receives`. A data message uses
// one announced receive; updates return these receives, and the ring space that was read. Updates
// use receives of their own: at most `update_window` of them may be unacknowledged, and their
// acknowledgements travel in updates of the other direction or, if that window is full, alone. The
// end has a receive of its own too, and so have the two kinds of wake-ups. So every message finds a
// receive at the peer, and nothing that makes room in one direction waits for the other direction.
#pragma once

#include <cstdint>
#include <optional>

#include "stream/ring_cursor.h"
#include "stream/word_wire.h"

namespace weft::stream::detail {

inline constexpr std::uint32_t update_window = 2;
// Receives for updates, for one acknowledgement that travels alone, for the end, and for a wake-up
// of each kind.
inline constexpr std::uint32_t control_receives = update_window + 4;
// Control messages in our send queue at once; more of them wait for completions.
inline constexpr std::uint32_t max_control_sends = 8;
// Longest piece. A piece is sent when all of it is copied, so long sends are cut to let copying and
// transfer overlap.
inline constexpr std::uint32_t max_piece_bytes = 256 * 1024;
// The same for bytes that this side places itself: short, so that the reader can copy one piece
// while the next one is written, and both stay in the processor's cache.
inline constexpr std::uint32_t max_placed_bytes = 32 * 1024;

struct FlowSizes {
  std::uint32_t send_ring_bytes = 0;  // of this side
  std::uint32_t sends = 0;            // data messages that may be in our send queue
  std::uint32_t peer_ring_bytes = 0;
  std::uint32_t peer_receives = 0;       // for data, that the peer has announced
  std::uint32_t receive_ring_bytes = 0;  // of this side
  std::uint32_t receives = 0;            // for data, that this side has announced
  // The part of each ring that is used at first, at most the ring; 0: all of it.
  std::uint32_t send_part_bytes = 0;
  std::uint32_t peer_part_bytes = 0;
  std::uint32_t receive_part_bytes = 0;
};

// Bytes that may be sent as one message.
struct Piece {
  std::uint32_t from = 0;  // offset in our send ring
  std::uint32_t to = 0;    // offset in the peer's ring
  std::uint32_t bytes = 0;
};

// Not thread-safe.
class FlowControl {
 public:
  explicit FlowControl(const FlowSizes& sizes);

  // --- Sending
  // Whether take(), take_direct(), take_message() or take_mapped() would succeed.
  [[nodiscard]] bool can_send() const {
    return placing_ ? can_place() : can_send_direct() && own_ring_.has_room();
  }
  [[nodiscard]] bool can_send_direct() const {
    return placing_ ? can_place() : peer_ring_.free_bytes() > 0 && can_send_message();
  }
  [[nodiscard]] bool can_send_message() const {
    return peer_credits_ > 0 && sends_ < sizes_.sends && !end_requested_;
  }
  [[nodiscard]] bool can_send_mapped() const {
    return own_ring_.has_room() && sends_ < sizes_.sends && !end_requested_;
  }
  // Whether take_growth() would return a word. A sender that cannot go on must try it.
  [[nodiscard]] bool can_grow() const {
    return !placing_ && peer_ring_.can_grow() && can_send_message();
  }
  // Each takes what a message of at most `wanted` bytes needs, and returns where the bytes go. A
  // piece of 0 bytes: nothing can be sent now.
  // Bytes that go through our send ring to the peer's ring.
  [[nodiscard]] Piece take(std::uint32_t wanted);
  // Bytes that go from other memory to the peer's ring.
  [[nodiscard]] Piece take_direct(std::uint32_t wanted);
  // A message that needs no bytes in the peer's ring.
  [[nodiscard]] bool take_message();
  // Doubles the part of the peer's ring that is used, if that part was too small and its end is
  // reached. Returns the word of the message that has to be sent now; sent(0) follows for it.
  [[nodiscard]] std::optional<std::uint32_t> take_growth();
  // From now on take_placed() replaces take() and take_direct(): this side copies its bytes into
  // the peer's ring itself. Returns the word of the message that has to be sent now; sent(0)
  // follows for it. Nothing while messages of data, or mapped writes, are under way.
  [[nodiscard]] std::optional<std::uint32_t> start_placing();
  [[nodiscard]] bool is_placing() const { return placing_; }
  // `grown`: the part of the peer's ring was extended first. Mapped writes are placed before bytes
  // that are sent later, so nothing can be taken while one is under way.
  [[nodiscard]] Piece take_placed(std::uint32_t wanted, bool& grown);
  // The peer has read bytes that were placed. At most peer_used() bytes.
  void room_returned(std::uint32_t bytes) { peer_ring_.give_back(bytes); }
  [[nodiscard]] bool has_room() const { return peer_ring_.has_room(); }
  // Bytes that go through our send ring to a mapped buffer, without a message.
  [[nodiscard]] Piece take_mapped(std::uint32_t wanted);
  // As many as were taken have completed, or one could not be posted; `ring_bytes` of our send ring
  // are free again. Requests complete in the order in which they were taken.
  void sent(std::uint32_t ring_bytes, std::uint32_t messages = 1);
  // For a request that sends nothing to the peer's program, as take_message(). False: there is no
  // place for it now.
  [[nodiscard]] bool take_place();
  // No data follows: the end is to be sent as soon as possible.
  void finish() { end_requested_ = true; }
  [[nodiscard]] bool finished() const { return end_requested_; }
  // The number of the last request that was taken, control messages not counted, and whether all
  // requests up to a number have completed.
  [[nodiscard]] std::uint64_t last_taken() const { return completed_ + sends_; }
  [[nodiscard]] bool has_completed(std::uint64_t number) const { return completed_ >= number; }
  // Everything that was to be sent has completed, including the end.
  [[nodiscard]] bool all_sent() const {
    return sends_ == 0 && control_sends_ == 0 && (!end_requested_ || end_sent_);
  }

  // --- Control
  // The next control message, if one is due and may be sent now.
  [[nodiscard]] std::optional<std::uint32_t> next_control();
  void control_sent(std::uint32_t messages = 1) { control_sends_ -= messages; }
  // The peer sleeps, and is to be woken. At most one wake-up of each kind may be under way.
  void wake_peer(Wake wake) { wakes_due_ |= 1U << static_cast<unsigned>(wake); }
  // A control message is due that may not be sent yet.
  [[nodiscard]] bool control_waits() const {
    return wakes_due_ != 0 || update_due() || acknowledgement_due() ||
           (end_requested_ && !end_sent_);
  }

  // --- Receiving
  // Counts a message whose receive is posted again. `bytes` is the length of the write as the
  // transport reports it; nothing if it does not. Returns false, and changes nothing, if the peer
  // violates the protocol.
  [[nodiscard]] bool received(std::uint32_t word, std::optional<std::uint32_t> bytes = {});
  // The peer places its bytes without messages.
  [[nodiscard]] bool peer_places() const { return peer_places_; }
  // The peer has placed bytes. Counts those up to the end of the part, at most `bytes`, and returns
  // how many: 0 if the peer violates the protocol.
  [[nodiscard]] std::uint32_t received_placed(std::uint64_t bytes);
  // The peer goes on behind the part of the ring. Returns false, as received().
  [[nodiscard]] bool received_placed_growth();
  [[nodiscard]] std::uint32_t readable() const { return unread_; }
  // Unread bytes that lie side by side in our ring: those behind the first `skipped` unread bytes.
  struct Unread {
    std::uint32_t at = 0;
    std::uint32_t bytes = 0;
  };
  [[nodiscard]] Unread unread(std::uint32_t skipped = 0) const;
  void read(std::uint32_t bytes);
  // A call waits for this many unread bytes; 0: none does. What was read is returned before its
  // time if the peer has no room for them otherwise.
  void want(std::uint32_t unread) { wanted_ = unread; }
  // The peer can send nothing until bytes are read. A peer that has come to the end of a part which
  // may grow goes on behind it.
  [[nodiscard]] bool is_full() const {
    const bool grows = write_at_ == 0 && receive_part_bytes_ < sizes_.receive_ring_bytes;
    return unread_ == receive_part_bytes_ && !grows;
  }
  [[nodiscard]] bool end_received() const { return end_received_; }

  // --- State, for tests and statistics
  [[nodiscard]] std::uint32_t peer_free() const { return peer_ring_.free_bytes(); }
  [[nodiscard]] std::uint32_t peer_used() const { return peer_ring_.used_bytes(); }
  [[nodiscard]] std::uint32_t own_used() const { return own_ring_.used_bytes(); }
  [[nodiscard]] std::uint32_t own_part_bytes() const { return own_ring_.part_bytes(); }
  [[nodiscard]] std::uint32_t receive_part_bytes() const { return receive_part_bytes_; }
  [[nodiscard]] std::uint32_t peer_credits() const { return peer_credits_; }
  [[nodiscard]] const FlowSizes& sizes() const { return sizes_; }

 private:
  [[nodiscard]] bool update_due() const {
    return owed_bytes_ >= bytes_threshold_ || owed_receives_ >= receives_threshold_ ||
           (owed_bytes_ > 0 && wanted_ > receive_part_bytes_ - owed_bytes_);
  }
  [[nodiscard]] bool acknowledgement_due() const { return owed_acknowledgements_ == update_window; }
  [[nodiscard]] std::uint32_t make_update();
  [[nodiscard]] bool received_update(const Update& update);
  [[nodiscard]] bool can_place() const {
    return own_ring_.used_bytes() == 0 && peer_ring_.has_room() && !end_requested_;
  }
  [[nodiscard]] bool received_data(std::uint32_t bytes);
  [[nodiscard]] bool received_place();
  [[nodiscard]] bool received_growth(std::uint32_t bytes);
  void extend_part(std::uint32_t bytes);

  FlowSizes sizes_;

  // Sending.
  RingCursor own_ring_;      // in use: bytes that have not completed
  RingCursor peer_ring_;     // in use: bytes that no update has returned yet
  std::uint32_t sends_ = 0;  // data messages that have not completed
  std::uint64_t completed_ = 0;
  std::uint32_t peer_credits_;  // receives of the peer for data
  bool end_requested_ = false;
  bool end_sent_ = false;
  bool placing_ = false;

  // Control messages.
  std::uint32_t control_sends_ = 0;          // that have not completed
  std::uint32_t unacknowledged_ = 0;         // updates that the peer has not acknowledged
  std::uint32_t owed_acknowledgements_ = 0;  // updates of the peer that are to be acknowledged
  std::uint32_t wakes_due_ = 0;              // a bit for each Wake

  // Receiving. What is owed goes into the next update, which is sent from the thresholds on.
  std::uint32_t receive_part_bytes_;  // of our ring, that the peer uses
  std::uint32_t write_at_ = 0;        // where the peer writes its next byte
  std::uint32_t read_at_ = 0;
  std::uint32_t unread_ = 0;
  std::uint32_t owed_bytes_ = 0;  // read, and not returned to the peer
  std::uint32_t owed_receives_ = 0;
  std::uint32_t wanted_ = 0;
  std::uint32_t bytes_threshold_;
  std::uint32_t receives_threshold_;
  bool end_received_ = false;
  bool peer_places_ = false;
};

}  // namespace weft::stream::detail
