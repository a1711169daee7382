// Holds messages of queue 0 that arrived before there was a receive for them, in order and up to a
// limit in bytes. RFC 5041 §7.1 knows only the end of the stream for these; see
// receiver_not_ready.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "iwarp/byte_queue.h"
#include "iwarp/segment.h"

namespace weft::iwarp {

// A message without its payload, which is in the hold.
class HeldMessage {
 public:
  // `queue`: the shared receive queue that the message belongs to, where the peer names one.
  HeldMessage(std::uint64_t number, std::uint32_t queue, const Segment& segment);

  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] std::uint32_t queue() const { return queue_; }
  [[nodiscard]] std::uint32_t payload_bytes() const { return payload_bytes_; }
  // The segment that arrived last.
  [[nodiscard]] Segment segment() const;
  [[nodiscard]] std::optional<std::uint32_t> immediate_be() const;
  // Only the immediate of a Write is held; the Write itself is placed.
  [[nodiscard]] bool from_write() const { return from_write_; }
  // The length of that Write.
  [[nodiscard]] std::uint32_t write_bytes() const { return write_bytes_; }
  // Its last segment has arrived.
  [[nodiscard]] bool complete() const { return complete_; }

  void add(const Segment& segment);
  void finish(std::optional<std::uint32_t> immediate_be);
  void finish_write(std::uint32_t immediate_be, std::uint32_t write_bytes);

 private:
  std::uint64_t number_;  // among all messages of the peer's requester, from 1
  std::uint32_t queue_;
  std::uint32_t payload_bytes_ = 0;
  std::uint32_t segment_bytes_ = 0;
  std::uint32_t write_bytes_ = 0;
  std::uint32_t immediate_be_ = 0;
  std::array<std::byte, wire::DdpUntagged::header_bytes> header_{};
  bool has_immediate_ = false;
  bool from_write_ = false;
  bool complete_ = false;
};

class Hold {
 public:
  // What a message costs beside its payload, since empty messages take memory, too. Part of the
  // protocol between Weft devices: PeerWindow counts with the same number on the other side.
  static constexpr std::uint32_t message_cost_bytes = 64;

  explicit Hold(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }
  [[nodiscard]] const HeldMessage& front() const { return messages_.front(); }
  [[nodiscard]] HeldMessage& back() { return messages_.back(); }

  // Begins a new message. False: the hold is full.
  [[nodiscard]] bool begin(std::uint64_t number, std::uint32_t queue, const Segment& segment);
  // Makes room for the payload of `segment` at the end of the newest message. False: the hold is
  // full.
  [[nodiscard]] bool extend(const Segment& segment);
  // Appends the memory of [at, at + length) of the newest message's payload to `out`.
  void map_newest(std::size_t at, std::size_t length, std::vector<iovec>& out) const;
  // The payload of the oldest message from `at`, which is less than its length, as far as it lies
  // side by side.
  [[nodiscard]] std::span<const std::byte> oldest_payload(std::size_t at) const;
  // Removes the oldest message.
  void pop();

  // How many messages were ever begun, and removed.
  [[nodiscard]] std::uint64_t begun() const { return removed_ + messages_.size(); }
  [[nodiscard]] std::uint64_t removed() const { return removed_; }

 private:
  [[nodiscard]] std::size_t free_bytes() const;

  std::size_t limit_bytes_;
  std::deque<HeldMessage> messages_;
  ByteQueue payload_;  // of all messages, one behind the other
  std::uint64_t removed_ = 0;
};

// A deque allocates blocks of 512 bytes and a table of them.
static_assert(sizeof(HeldMessage) + 8 <= Hold::message_cost_bytes, "the hold counts what it needs");

}  // namespace weft::iwarp
