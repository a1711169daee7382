// The frames of the message protocol: docs/message-protocol.md. Bytes to values and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "weft/verbs/slice.hpp"

namespace weft::message::detail {

enum class Kind : std::uint8_t { message = 1, offer = 2, update = 3, close = 4, joined = 5 };

// Counts go round, modulo 2^32.
using Count = std::uint32_t;

// One of the messages of a JOINED frame.
struct Part {
  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  bool confirm = false;
  std::uint64_t bytes = 0;
  std::size_t offset = 0;  // of its payload in the frame
};

struct Frame {
  static constexpr std::size_t header_bytes = 16;    // of every kind
  static constexpr std::size_t payload_offset = 32;  // of a message
  static constexpr std::size_t offer_bytes = 44;     // without its pieces
  static constexpr std::size_t max_pieces = 16;
  static constexpr std::size_t part_header_bytes = 16;
  static constexpr std::size_t part_alignment = 8;
  // Of a joined frame. A receiver keeps more for each than the sixteen bytes of an empty one.
  static constexpr std::size_t max_parts = 256;
  // What any frame but a message or joined ones fits into.
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
  std::vector<Part> parts;                 // joined

  // Of a joined frame: the next message. False where it would have more than `limit` bytes.
  [[nodiscard]] bool join(Part part, std::size_t limit);
  // The frame without the payload; returns how many bytes it has. `into` has largest_bytes. Of a
  // joined frame `into` has as many as it was joined for, and those of the payloads, between, are
  // left as they are.
  std::size_t encode(MutableBytes into) const;
  // Nothing where the bytes are no frame: too short, of an unknown kind, an offer whose pieces are
  // none, too many, empty, or not as long together as it says, or joined messages that are none,
  // too many, or go beyond the end.
  [[nodiscard]] static std::optional<Frame> parse(Bytes bytes);
};

static_assert(Frame::offer_bytes + Frame::max_pieces * verbs::RemoteSlice::encoded_bytes <=
              Frame::largest_bytes);

}  // namespace weft::message::detail
