// The frames of the message protocol: docs/message-protocol.md. Bytes to values and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "weft/verbs/slice.hpp"

namespace weft::message::detail {

enum class Kind : std::uint8_t { message = 1, offer = 2, update = 3, close = 4 };

// Counts go round, modulo 2^32.
using Count = std::uint32_t;

struct Frame {
  static constexpr std::size_t header_bytes = 16;    // of every kind
  static constexpr std::size_t payload_offset = 32;  // of a message
  static constexpr std::size_t offer_bytes = 44;     // without its pieces
  static constexpr std::size_t max_pieces = 16;
  // What any frame but a message fits into.
  static constexpr std::size_t largest_bytes = 384;

  Kind kind = Kind::update;
  bool confirm = false;
  bool answer = false;
  std::uint16_t credits = 0;
  Count delivered = 0;
  Count fetched = 0;
  Count updates = 0;
  std::uint32_t type = 0;                  // message, offer
  std::uint64_t tag = 0;                   // message, offer
  std::uint64_t bytes = 0;                 // of the message; on the wire of an offer only
  std::vector<verbs::RemoteSlice> pieces;  // offer

  // The frame without the payload; returns how many bytes it has. `into` has largest_bytes.
  std::size_t encode(MutableBytes into) const;
  // Nothing where the bytes are no frame: too short, of an unknown kind, or an offer whose pieces
  // are none, too many, empty, or not as long together as it says.
  [[nodiscard]] static std::optional<Frame> parse(Bytes bytes);
};

static_assert(Frame::offer_bytes + Frame::max_pieces * verbs::RemoteSlice::encoded_bytes <=
              Frame::largest_bytes);

}  // namespace weft::message::detail
