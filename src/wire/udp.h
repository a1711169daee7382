// UDP headers: RFC 768.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// RoCE v2's, by InfiniBand's Annex A17.
inline constexpr std::uint16_t roce_v2_port = 4791;

struct UdpHeader {
  static constexpr std::size_t header_bytes = 8;

  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t length_bytes = header_bytes;  // with the header; 0: offload or a jumbogram
  std::uint16_t checksum = 0;                 // 0: none was computed (IPv4)

  // Does not judge the checksum: with offload, a capture holds none.
  [[nodiscard]] static Result<UdpHeader, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const UdpHeader&) const = default;
};

}  // namespace weft::wire
