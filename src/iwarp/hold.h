// Holds messages of queue 0 that arrived before there was a receive for them, in order and up to a
// limit in bytes. RFC 5041 §7.1 knows only the end of the stream for these; see
// receiver_not_ready.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "iwarp/segment.h"

namespace weft::iwarp {

struct HeldMessage {
  Segment segment{};         // the last one that arrived
  std::uint64_t number = 0;  // among all messages of the peer's requester, from 1
  std::vector<std::byte> payload{};
  std::optional<std::uint32_t> immediate_be{};
  bool from_write = false;        // only the immediate of a Write; the Write itself is placed
  std::uint64_t write_bytes = 0;  // length of that Write
  bool complete = false;          // its last segment has arrived
};

class Hold {
 public:
  // What a message costs beside its payload, since empty messages take memory, too. Part of the
  // protocol between Weft devices: PeerWindow counts with the same number on the other side.
  static constexpr std::uint32_t message_cost_bytes = 64;

  explicit Hold(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }
  [[nodiscard]] HeldMessage& front() { return messages_.front(); }
  [[nodiscard]] const HeldMessage& front() const { return messages_.front(); }
  [[nodiscard]] HeldMessage& back() { return messages_.back(); }

  // Begins a new message. False: the hold is full.
  [[nodiscard]] bool begin(std::uint64_t number, const Segment& segment);
  // Makes room for the payload of `segment` at the end of the newest message. False: the hold is
  // full. Addresses inside that message's payload change.
  [[nodiscard]] bool extend(const Segment& segment);
  // Removes the oldest message.
  void pop();

  // How many messages were ever begun, and removed.
  [[nodiscard]] std::uint64_t begun() const { return removed_ + messages_.size(); }
  [[nodiscard]] std::uint64_t removed() const { return removed_; }

 private:
  std::size_t limit_bytes_;
  std::size_t used_bytes_ = 0;
  std::deque<HeldMessage> messages_;
  std::uint64_t removed_ = 0;
};

}  // namespace weft::iwarp
