// TCP headers: RFC 9293 §3.1, window scale of RFC 7323.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

namespace tcp_flag {
inline constexpr std::uint8_t fin = 0x01;
inline constexpr std::uint8_t syn = 0x02;
inline constexpr std::uint8_t rst = 0x04;
inline constexpr std::uint8_t psh = 0x08;
inline constexpr std::uint8_t ack = 0x10;
inline constexpr std::uint8_t urg = 0x20;
inline constexpr std::uint8_t ece = 0x40;
inline constexpr std::uint8_t cwr = 0x80;
}  // namespace tcp_flag

struct TcpHeader {
  static constexpr std::size_t min_header_bytes = 20;

  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint32_t sequence = 0;
  std::uint32_t acknowledgement = 0;
  std::uint8_t flags = 0;
  std::uint16_t window = 0;  // as on the wire: not scaled
  std::uint16_t checksum = 0;
  std::uint16_t urgent = 0;
  std::optional<std::uint16_t> mss_bytes;
  std::optional<std::uint8_t> window_scale;
  std::uint8_t other_options_bytes = 0;  // a multiple of 4; their content is not kept

  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  [[nodiscard]] std::size_t size() const;
  // Does not judge the checksum: with offload, a capture holds none.
  [[nodiscard]] static Result<TcpHeader, WireError> parse(Bytes bytes);
  // Writes size() bytes, other options as no-operations. The checksum is written as it stands: emit
  // with 0, sum pseudo_header() (wire/ip.h), header and payload, and store_tcp_checksum().
  void emit(MutableBytes out) const;
  bool operator==(const TcpHeader&) const = default;
};

void store_tcp_checksum(MutableBytes header, std::uint16_t checksum);

}  // namespace weft::wire
