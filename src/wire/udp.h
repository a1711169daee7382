// UDP headers: RFC 768.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

// The port of RoCE v2, by Annex A17 of the InfiniBand specification.
inline constexpr std::uint16_t roce_v2_port = 4791;

struct UdpHeader {
  static constexpr std::size_t header_bytes = 8;

  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t length_bytes = header_bytes;  // with the header; 0: offload or a jumbogram
  std::uint16_t checksum = 0;                 // 0: the sender computed none (IPv4)

  // Does not check the checksum: with offload, a capture has none.
  [[nodiscard]] static Result<UdpHeader, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const UdpHeader&) const = default;
};

// Writes the checksum into a header that was emitted without one. A sum of zero goes out as 0xFFFF,
// because zero means that there is no checksum (RFC 768).
void store_udp_checksum(MutableBytes header, std::uint16_t checksum);

namespace field::udp {
inline constexpr Field16 source_port{0};
inline constexpr Field16 destination_port{source_port.end()};
inline constexpr Field16 length_bytes{destination_port.end()};
inline constexpr Field16 checksum{length_bytes.end()};
static_assert(checksum.end() == UdpHeader::header_bytes);
}  // namespace field::udp

}  // namespace weft::wire
