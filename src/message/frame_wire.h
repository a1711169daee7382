// The frames of the message protocol, as values and as bytes. docs/message-protocol.md is the
// specification; the names of the fields are its names.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "weft/verbs/slice.hpp"

namespace weft::message::detail {

enum class Kind : std::uint8_t { message = 1, offer = 2, update = 3, close = 4, joined = 5 };

// Counts wrap around, modulo 2^32.
using Count = std::uint32_t;

// One of the messages of a JOINED frame.
struct Part {
  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  bool confirm = false;
  std::uint64_t bytes = 0;
  std::size_t offset = 0;  // of its payload in the frame
  friend bool operator==(const Part&, const Part&) = default;
};

struct Frame {
  static constexpr std::size_t header_bytes = 16;    // of every kind
  static constexpr std::size_t payload_offset = 32;  // of a message
  static constexpr std::size_t offer_bytes = 44;     // without its pieces
  static constexpr std::size_t max_pieces = 16;
  static constexpr std::size_t part_header_bytes = 16;
  static constexpr std::size_t part_alignment = 8;
  // Limits the parts of a joined frame: for an empty part of sixteen bytes a receiver keeps more
  // memory than that.
  static constexpr std::size_t max_parts = 256;
  // The largest size of a frame other than MESSAGE and JOINED: an offer of max_pieces, rounded up.
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
  std::uint64_t bytes = 0;                 // of the message; only an offer sends this number
  std::vector<verbs::RemoteSlice> pieces;  // offer
  std::vector<Part> parts;                 // joined

  // Appends a message to a joined frame and sets the part's offset. Returns false and appends
  // nothing if the frame would then have more than `limit` bytes or too many parts.
  [[nodiscard]] bool join(Part part, std::size_t limit);
  // Writes the frame without its payload and returns the size: of a message up to the payload, of a
  // joined frame up to the end of the last payload. `into` has largest_bytes, or for a joined frame
  // the `limit` that it was joined for. The payloads of a joined frame, between its headers, stay
  // as they are in `into`. Returns 0 if the frame does not fit.
  std::size_t encode(MutableBytes into) const;
  // Returns nothing for bytes that are not a frame: too few bytes, an unknown kind, an offer
  // without pieces, with too many, with an empty one or with a wrong sum, a joined frame without
  // parts, with too many, or with one that goes beyond the end.
  [[nodiscard]] static std::optional<Frame> parse(Bytes bytes);
  friend bool operator==(const Frame&, const Frame&) = default;
};

static_assert(Frame::offer_bytes + Frame::max_pieces * verbs::RemoteSlice::encoded_bytes <=
              Frame::largest_bytes);

}  // namespace weft::message::detail
