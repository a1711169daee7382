// Messages of queue 0 that arrived before there was a receive for them, in order and up to a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "iwarp/segment.h"

namespace weft::iwarp {

struct HeldMessage {
  Segment segment{};         // the last that came
  std::uint64_t number = 0;  // among all messages of the peer's requester, from 1
  std::vector<std::byte> payload{};
  std::optional<std::uint32_t> immediate_be{};
  bool from_write = false;  // only an immediate, behind a Write
  std::uint64_t write_bytes = 0;
  bool complete = false;
};

class Hold {
 public:
  // What a message costs beside its payload: empty ones take memory too. Part of the agreement with
  // a Weft peer, which counts what it sends.
  static constexpr std::uint32_t message_cost_bytes = 64;

  explicit Hold(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }
  [[nodiscard]] HeldMessage& front() { return messages_.front(); }
  [[nodiscard]] const HeldMessage& front() const { return messages_.front(); }
  [[nodiscard]] HeldMessage& back() { return messages_.back(); }

  // A new message. False: full.
  [[nodiscard]] bool begin(std::uint64_t number, const Segment& segment);
  // Room for `segment` at the end of the newest message. False: full. Its payload moves.
  [[nodiscard]] bool extend(const Segment& segment);
  void pop();

  // How many messages have ever come, and gone.
  [[nodiscard]] std::uint64_t came() const { return gone_ + messages_.size(); }
  [[nodiscard]] std::uint64_t gone() const { return gone_; }

 private:
  std::size_t limit_bytes_;
  std::size_t used_bytes_ = 0;
  std::deque<HeldMessage> messages_;
  std::uint64_t gone_ = 0;
};

}  // namespace weft::iwarp
