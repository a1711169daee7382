// The classic capture file format (draft-ietf-opsawg-pcap), in both byte orders and with both
// resolutions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

enum class ByteOrder : std::uint8_t { little, big };

struct PcapHeader {
  static constexpr std::size_t header_bytes = 24;

  ByteOrder order = ByteOrder::little;
  bool nanoseconds = false;  // else microseconds
  std::uint32_t snap_bytes = 0;
  std::uint16_t link_type = 1;

  // Fails with bad_key if the file is of another format.
  [[nodiscard]] static Result<PcapHeader, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const PcapHeader&) const = default;
};

// The header before each packet.
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

namespace field::pcap_record {
inline constexpr Field32 seconds{0};
inline constexpr Field32 fraction{seconds.end()};
inline constexpr Field32 captured_bytes{fraction.end()};
inline constexpr Field32 original_bytes{captured_bytes.end()};
static_assert(original_bytes.end() == PcapRecord::header_bytes);
}  // namespace field::pcap_record

inline Result<PcapRecord, WireError> PcapRecord::parse(Bytes bytes, ByteOrder order) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::pcap_record;
  const auto load = [&](Field32 field) {
    const std::byte* from = bytes.data() + field.at;
    return order == ByteOrder::little ? load_le<std::uint32_t>(from) : load_be<std::uint32_t>(from);
  };
  return PcapRecord{.seconds = load(at::seconds),
                    .fraction = load(at::fraction),
                    .captured_bytes = load(at::captured_bytes),
                    .original_bytes = load(at::original_bytes)};
}

}  // namespace weft::wire
