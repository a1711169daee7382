// One direction of a TCP connection: puts segments in any order into byte order (RFC 9293 §3.4).
//
// Positions count bytes in 64 bits, so that they never wrap. A segment waits until everything
// before it was delivered, and until everything was delivered that its sender had received from the
// other side. So a response is never delivered before its request, in whatever order the capture
// has them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/budget.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// Bytes of a stream that are not in the capture.
struct Hole {
  std::uint64_t bytes = 0;
  bool cut = false;  // by the snap length: their segment was captured
};

// Receives the bytes of one direction.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // `position` is that of the first byte.
  virtual void on_bytes(const Stamp& stamp, std::uint64_t position, Bytes bytes) = 0;
  // Reports bytes that were on the wire but are not in the capture.
  virtual void on_hole(const Stamp& stamp, std::uint64_t position, const Hole& hole) = 0;
};

class WEFT_API TcpStream {
 public:
  struct Limits {
    std::size_t held_segments = 4096;          // segments that wait until a hole is filled
    std::size_t held_bytes = 8 * 1024 * 1024;  // memory for waiting segments
    std::uint64_t window_bytes = 1ULL << 30;   // RFC 7323 §2.3: no window is larger
    // Without a SYN: packets to collect before the first byte is chosen.
    std::uint64_t gather_packets = 16;
    // The same if the capture is out of order: then the SYN, or an earlier segment, may come late.
    std::uint64_t late_gather_packets = 1024;
    // Timeout for acknowledged bytes to count as not captured, in packets.
    std::uint64_t patience_packets = 1024;
    // An acknowledgement that is further than this beyond what was seen may belong to an earlier
    // connection (RFC 9293 §3.5.1), so a second one must confirm it. A reset is treated likewise.
    std::uint64_t certain_bytes = 1024 * 1024;
  };
  struct Segment {
    Stamp stamp;
    std::uint32_t sequence = 0;
    Bytes bytes;
    std::uint64_t missing_bytes = 0;  // after `bytes`: cut by the snap length
    std::uint64_t needs = 0;          // position that the other direction must have reached
  };

  // Both must outlive the stream.
  TcpStream(const Limits& limits, Budget& budget) : limits_(limits), budget_(budget) {}
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;
  ~TcpStream() { budget_.give_back(held_bytes_); }

  // Begins the stream at a SYN; `sequence` is that of the first byte.
  void begin(std::uint32_t sequence);
  // Delivers or stores a segment. Returns false if its sequence number cannot belong to this
  // stream, for example because a new connection uses the same ports. `other` is the opposite
  // direction.
  bool add(const Segment& segment, const TcpStream& other, StreamReader& reader);
  // Sets the end of the stream at a FIN. `sequence` is that of the FIN itself, which follows the
  // last byte (RFC 9293 §3.4).
  void finish_at(std::uint32_t sequence) { end_ = position_of(sequence); }
  // The other side has acknowledged everything before `sequence`. Returns false if that is not new,
  // or not certain yet: what is far beyond all that was seen needs a second acknowledgement.
  bool acknowledge(std::uint32_t sequence);
  // The sender has sent everything before `position` (it has reset the connection there), so what
  // is missing of it is awaited.
  void sent_before(std::uint64_t position) {
    if (running() && position <= next_ + limits_.held_bytes) {
      acknowledged_ = std::max(acknowledged_, position);
    }
  }
  // Returns whether the position is so far from what was seen that it need not belong to this
  // stream, although it may where the capture lacks much.
  [[nodiscard]] bool is_doubtful(std::uint64_t position) const {
    return position > seen_end() + limits_.certain_bytes ||
           position + limits_.certain_bytes < next_;
  }
  // Returns whether everything before `position` was delivered, or is known to be missing. A FIN
  // counts as one byte.
  [[nodiscard]] bool passed(std::uint64_t position) const {
    return next_ >= position || (at_end() && position == *end_ + 1);
  }
  // Returns whether a segment waits, or one is missing that the other side has acknowledged.
  [[nodiscard]] bool waits() const { return !held_.empty() || awaits_acknowledged(); }

  // Delivers the stored segments that are in order; returns true if there were any.
  bool deliver(const TcpStream& other, StreamReader& reader);
  // Returns true if nothing waits in this stream, and it waits for nothing.
  [[nodiscard]] bool settled() const {
    return (phase_ == Phase::running || absent()) && held_.empty() && acknowledged_ <= next_;
  }
  // Returns whether the capture has shown, before the first byte was chosen, that it is out of
  // order.
  [[nodiscard]] bool out_of_order() const { return out_of_order_; }
  // The capture is out of order, as the other direction shows.
  void set_out_of_order() {
    if (!absent()) out_of_order_ = true;
  }
  // Gives up waiting for segments that did not come in time. Call it for each packet of the
  // connection, with its number, unless settled(). Returns true if something was delivered.
  bool watch(std::uint64_t packet, const Stamp& stamp, StreamReader& reader);
  // Nothing will come any more: reports the next hole as final. Returns false if there was nothing
  // to do.
  bool give_up(const Stamp& stamp, StreamReader& reader);
  // Decides for which of two directions give_up() is called first: one that lacks bytes itself
  // before one that only waits for the other; then the one that has waited since the earlier frame.
  [[nodiscard]] bool gives_up_before(const TcpStream& other) const;

  // Returns whether anything of this direction was seen: whether begin() or add() was called.
  [[nodiscard]] bool seen() const { return phase_ != Phase::unseen; }
  // Returns whether it is known where the stream begins, or that nothing of it was captured.
  [[nodiscard]] bool decided() const { return running() || absent(); }
  // Returns whether a stream of which the first byte is not chosen yet may begin with this sequence
  // number, at most `most_bytes` before what was seen.
  [[nodiscard]] bool may_begin(std::uint32_t sequence, std::uint64_t most_bytes) const {
    const std::uint64_t first = held_.empty() ? next_ : held_.begin()->first;
    const std::uint64_t position = position_of(sequence);
    return position <= first && first - position <= most_bytes;
  }
  // Returns whether the first byte is chosen. Before that nothing is delivered.
  [[nodiscard]] bool running() const { return phase_ == Phase::running; }
  // Returns whether the stream began at a SYN.
  [[nodiscard]] bool from_the_start() const { return first_sequence_.has_value(); }
  // Returns the sequence number of the first byte, which follows the SYN; nothing if the stream did
  // not begin at a SYN.
  [[nodiscard]] std::optional<std::uint32_t> first_sequence() const { return first_sequence_; }
  // Everything before this position was delivered, or is known to be missing.
  [[nodiscard]] std::uint64_t position() const { return next_; }
  // Returns the position before which the other side has acknowledged everything; 0 if it has
  // acknowledged nothing. A FIN counts as one byte here.
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_; }
  // Returns the position of the FIN, if at_end().
  [[nodiscard]] std::uint64_t end() const { return end_.value_or(0); }
  // Returns whether a FIN was captured, and everything before it was delivered or is known to be
  // missing.
  [[nodiscard]] bool at_end() const { return end_ && running() && next_ >= *end_; }
  // Returns the position with this sequence number that is the nearest to position(). It has no
  // meaning before the first call of begin(), add() or acknowledge().
  [[nodiscard]] std::uint64_t position_of(std::uint32_t sequence) const {
    const auto distance = static_cast<std::int32_t>(sequence - static_cast<std::uint32_t>(next_));
    return next_ + static_cast<std::uint64_t>(std::int64_t{distance});
  }
  // Counts bytes that were received again.
  [[nodiscard]] std::uint64_t repeated_bytes() const { return repeated_bytes_; }
  // The segment that has waited for longest; nullptr if none waits.
  [[nodiscard]] const Stamp* waits_since() const {
    return held_.empty() ? nullptr : &held_.begin()->second.stamp;
  }

 private:
  enum class Phase : std::uint8_t { unseen, gathering, running };
  struct Held {
    Stamp stamp;
    std::vector<std::byte> bytes;
    std::uint64_t missing_bytes = 0;
    std::uint64_t needs = 0;

    [[nodiscard]] std::uint64_t size() const { return bytes.size() + missing_bytes; }
    // Returns its size in memory, including the map node; for small segments that dominates.
    [[nodiscard]] std::size_t cost() const { return bytes.size() + 2 * sizeof(Held); }
  };

  // Fixes the reference point of positions at the first sequence number seen, of whatever kind.
  void refer_to(std::uint32_t sequence);
  [[nodiscard]] bool reached(std::uint64_t position) const {
    return absent() || (phase_ == Phase::running && next_ >= position);
  }
  // Returns the position after everything that was seen or acknowledged.
  [[nodiscard]] std::uint64_t seen_end() const {
    const std::uint64_t seen = std::max(next_, acknowledged_);
    return held_.empty() ? seen
                         : std::max(seen, held_.rbegin()->first + held_.rbegin()->second.size());
  }
  // Returns whether an acknowledgement up to this position shows that the capture is out of order.
  [[nodiscard]] bool shows_disorder(std::uint64_t position) const;
  // Returns true if many packets came, but none of this direction: the capture has only the other
  // one.
  [[nodiscard]] bool absent() const {
    return phase_ == Phase::unseen && gathered_packets_ >= gather_packets();
  }
  [[nodiscard]] std::uint64_t gather_packets() const {
    return out_of_order_ ? limits_.late_gather_packets : limits_.gather_packets;
  }
  void hold(const Segment& segment, std::uint64_t begin);
  void hold_piece(const Segment& segment, std::uint64_t begin, std::uint64_t from,
                  std::uint64_t to);
  void pass_on(const Stamp& stamp, Bytes bytes, const Hole& hole, StreamReader& reader);
  void pass_on_first(StreamReader& reader);
  void skip_to(std::uint64_t position, const Stamp& stamp, StreamReader& reader);
  [[nodiscard]] bool too_much_held() const {
    return held_.size() > limits_.held_segments || held_bytes_ > limits_.held_bytes;
  }
  [[nodiscard]] bool awaits_acknowledged() const;
  [[nodiscard]] bool lacks_bytes() const {
    return held_.empty() ? awaits_acknowledged() : held_.begin()->first > next_;
  }

  const Limits& limits_;
  Budget& budget_;
  Phase phase_ = Phase::unseen;
  bool out_of_order_ = false;
  // The low half of a position is the sequence number. The high half begins at 1, so that there are
  // positions before the first one seen.
  std::uint64_t next_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t doubtful_ = 0;  // an acknowledgement that a second one must confirm; 0: none
  std::optional<std::uint64_t> end_;
  std::optional<std::uint32_t> first_sequence_;
  std::map<std::uint64_t, Held> held_;  // by position; they do not overlap
  std::size_t held_bytes_ = 0;
  std::uint64_t gathered_packets_ = 0;
  std::uint64_t waiting_since_ = 0;  // packet number; 0: not waiting
  std::uint64_t waiting_at_ = 0;     // position
  std::uint64_t repeated_bytes_ = 0;
};

}  // namespace weft::capture
