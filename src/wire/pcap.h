// The classic capture file format (draft-ietf-opsawg-pcap), in both byte orders and with both
// resolutions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

enum class ByteOrder : std::uint8_t { little, big };

struct PcapHeader {
  static constexpr std::size_t header_bytes = 24;

  ByteOrder order = ByteOrder::little;
  bool nanoseconds = false;  // else microseconds
  std::uint32_t snap_bytes = 0;
  std::uint16_t link_type = 1;

  // Fails with bad_key where the file is of another format.
  [[nodiscard]] static Result<PcapHeader, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const PcapHeader&) const = default;
};

// What stands before each packet.
struct PcapRecord {
  static constexpr std::size_t header_bytes = 16;

  std::uint32_t seconds = 0;
  std::uint32_t fraction = 0;  // in the file's resolution
  std::uint32_t captured_bytes = 0;
  std::uint32_t original_bytes = 0;

  [[nodiscard]] static Result<PcapRecord, WireError> parse(Bytes bytes, ByteOrder order);
  void emit(MutableBytes out, ByteOrder order) const;
  bool operator==(const PcapRecord&) const = default;
};

// --- Inline, for the data path -------------------------------------------------------------------

inline Result<PcapRecord, WireError> PcapRecord::parse(Bytes bytes, ByteOrder order) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const auto word = [&](std::size_t at) {
    return order == ByteOrder::little ? load_le<std::uint32_t>(&bytes[at])
                                      : load_be<std::uint32_t>(&bytes[at]);
  };
  return PcapRecord{.seconds = word(0),
                    .fraction = word(4),
                    .captured_bytes = word(8),
                    .original_bytes = word(12)};
}

}  // namespace weft::wire
