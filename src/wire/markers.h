// Markers of MPA (RFC 5044 §4.3): finds their places in an FPDU, inserts them, removes them. Weft
// never requests markers from a peer, but generates them for a peer that requests them.
//
// There is a marker at every stream position that is a multiple of 512, counted with markers from
// the first FPDU byte. Positions, FPDUs and markers are multiples of four bytes, so a marker never
// splits the length field, a header word or the CRC. A marker between two FPDUs belongs to the
// second one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/mpa.h"

namespace weft::wire {

// A piece of the stream: a marker, if there is one, and the plain FPDU bytes behind it.
struct MarkedPiece {
  bool has_marker = false;
  Marker marker;
  std::size_t plain_offset = 0;  // within the FPDU without markers
  std::size_t plain_bytes = 0;   // never 0

  bool operator==(const MarkedPiece&) const = default;
};

// Splits an FPDU of `plain_bytes` bytes, CRC included, that starts at stream position `position`,
// at its markers.
class MarkedPieces {
 public:
  MarkedPieces(std::uint64_t position, std::size_t plain_bytes)
      : position_(position), plain_bytes_(plain_bytes) {}

  // Returns nothing after the last piece.
  [[nodiscard]] std::optional<MarkedPiece> next();

 private:
  std::uint64_t position_;
  std::size_t plain_bytes_;
  std::size_t plain_offset_ = 0;
  std::size_t from_length_field_ = 0;
};

// Returns the size on the stream, markers included, of an FPDU of `plain_bytes` that starts at
// `position`.
[[nodiscard]] std::size_t marked_bytes(std::uint64_t position, std::size_t plain_bytes);

// Writes an FPDU with markers and the CRC over both. `fpdu` has fpdu_bytes() bytes; the CRC in it
// is ignored. Returns the bytes written: marked_bytes(). Fails with bad_length if `fpdu` is not one
// whole FPDU or a pointer would not fit its 16 bits (never within MULPDU), and with truncated if
// `out` is too small.
[[nodiscard]] Result<std::size_t, WireError> insert_markers(std::uint64_t position, Bytes fpdu,
                                                            MutableBytes out);

struct StrippedFpdu {
  std::size_t stream_bytes = 0;  // taken from the stream
  std::size_t plain_bytes = 0;   // written
  bool crc_good = false;         // covers the markers, so it cannot be checked on the plain bytes

  bool operator==(const StrippedFpdu&) const = default;
};

// Copies an FPDU without its markers. `stream` begins at `position` with an FPDU or the marker
// before it, and may have more bytes behind it. The CRC is copied unchanged. Fails with truncated
// until the FPDU is whole, with bad_marker if a marker points elsewhere, with bad_length if `out`
// is too small: fpdu_bytes(fpdu_max_ulpdu_bytes) always suffices.
[[nodiscard]] Result<StrippedFpdu, WireError> strip_markers(std::uint64_t position, Bytes stream,
                                                            MutableBytes out);

}  // namespace weft::wire
