// Markers of MPA (RFC 5044 §4.3): four bytes at each 512 bytes of the stream, counted from the
// first FPDU, so that a receiver can find FPDUs again. They may come anywhere, also within a
// header.
#include "wire/markers.h"

#include <algorithm>
#include <limits>

namespace weft::wire {

// A piece ends before the next marker. A marker at the end of the FPDU is left to the next FPDU.
std::optional<MarkedPiece> MarkedPieces::next() {
  if (plain_offset_ == plain_bytes_) return std::nullopt;
  MarkedPiece piece;
  piece.plain_offset = plain_offset_;
  if (bytes_to_marker(position_) == 0) {
    piece.has_marker = true;
    piece.marker.fpdu_pointer = static_cast<std::uint16_t>(from_length_field_);
    position_ += marker_bytes;
    // RFC 5044 §4.3: the distance counts from the length field, so it leaves out a marker before
    // it.
    if (plain_offset_ > 0) from_length_field_ += marker_bytes;
  }
  piece.plain_bytes = std::min(plain_bytes_ - plain_offset_, bytes_to_marker(position_));
  position_ += piece.plain_bytes;
  plain_offset_ += piece.plain_bytes;
  from_length_field_ += piece.plain_bytes;
  return piece;
}

// Computed, not walked: transmitters call this for each FPDU.
std::size_t marked_bytes(std::uint64_t position, std::size_t plain_bytes) {
  if (plain_bytes == 0) return 0;
  constexpr std::size_t plain_interval_bytes = marker_interval_bytes - marker_bytes;
  // After the first marker, each further one comes after as many plain bytes as fit between two.
  const std::size_t before_first = bytes_to_marker(position);
  if (plain_bytes <= before_first) return plain_bytes;
  const std::size_t behind_first = plain_bytes - before_first;
  const std::size_t markers = (behind_first + plain_interval_bytes - 1) / plain_interval_bytes;
  return plain_bytes + markers * marker_bytes;
}

Result<std::size_t, WireError> insert_markers(std::uint64_t position, Bytes fpdu,
                                              MutableBytes out) {
  if (fpdu.size() < fpdu_length_bytes) return WireError::bad_length;
  if (fpdu.size() != fpdu_bytes(load_fpdu_length(fpdu.data()))) return WireError::bad_length;
  const std::size_t total = marked_bytes(position, fpdu.size());
  // The pointer of a marker has 16 bits, so nothing larger could be pointed across.
  if (total > std::numeric_limits<std::uint16_t>::max()) return WireError::bad_length;
  if (out.size() < total) return WireError::truncated;

  MarkedPieces pieces(position, fpdu.size());
  auto rest = out;
  while (const auto piece = pieces.next()) {
    if (piece->has_marker) {
      piece->marker.emit(rest);
      rest = rest.subspan(marker_bytes);
    }
    std::ranges::copy(fpdu.subspan(piece->plain_offset, piece->plain_bytes), rest.begin());
    rest = rest.subspan(piece->plain_bytes);
  }
  // RFC 5044 §4.4: the CRC covers the markers too, also the one in front. A marker behind the CRC
  // belongs to the next FPDU, so the CRC is always last.
  const auto covered = out.first(total - fpdu_crc_bytes);
  store_fpdu_crc(covered.data() + covered.size(), crc32c(covered));
  return total;
}

namespace {

// Returns the plain size of the first FPDU of `stream`, which may have a marker before it.
Result<std::size_t, WireError> plain_size(std::uint64_t position, Bytes stream) {
  // Only in front: a marker within the length field cannot be, because both are aligned to four
  // bytes.
  const std::size_t skip = bytes_to_marker(position) == 0 ? marker_bytes : 0;
  if (stream.size() < skip + fpdu_length_bytes) return WireError::truncated;
  return fpdu_bytes(load_fpdu_length(stream.data() + skip));
}

}  // namespace

Result<StrippedFpdu, WireError> strip_markers(std::uint64_t position, Bytes stream,
                                              MutableBytes out) {
  const auto plain_bytes = plain_size(position, stream);
  if (!plain_bytes) return plain_bytes.error();
  const std::size_t total = marked_bytes(position, *plain_bytes);
  if (stream.size() < total) return WireError::truncated;
  if (out.size() < *plain_bytes) return WireError::bad_length;

  MarkedPieces pieces(position, *plain_bytes);
  auto rest = stream.first(total);
  while (const auto piece = pieces.next()) {
    if (piece->has_marker) {
      const auto marker = Marker::parse(rest);
      // A marker that points elsewhere means that framing is lost (RFC 5044 §8).
      if (!marker || *marker != piece->marker) return WireError::bad_marker;
      rest = rest.subspan(marker_bytes);
    }
    std::ranges::copy(rest.first(piece->plain_bytes), out.begin() + piece->plain_offset);
    rest = rest.subspan(piece->plain_bytes);
  }
  return StrippedFpdu{.stream_bytes = total,
                      .plain_bytes = *plain_bytes,
                      .crc_good = fpdu_crc_good(stream.first(total))};
}

}  // namespace weft::wire
