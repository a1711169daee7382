// InfiniBand below its transport: the Local Route Header and the Global Route Header (InfiniBand
// Architecture Specification, volume 1, §7.7 and §8.3). RoCE v1 begins with the latter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/ip.h"

namespace weft::wire {

struct LocalRouteHeader {
  static constexpr std::size_t header_bytes = 8;

  enum class Next : std::uint8_t { raw = 0, raw_ip = 1, transport = 2, global = 3 };

  Next next = Next::transport;
  std::uint16_t destination_lid = 0;
  std::uint16_t packet_words = 0;  // of four bytes: from this header to the end of the ICRC
  std::uint16_t source_lid = 0;

  [[nodiscard]] static Result<LocalRouteHeader, WireError> parse(Bytes bytes) {
    if (bytes.size() < header_bytes) return WireError::truncated;
    return LocalRouteHeader{
        .next = Next(std::to_integer<unsigned>(bytes[1]) & 3),
        .destination_lid = load_be<std::uint16_t>(&bytes[2]),
        .packet_words = static_cast<std::uint16_t>(load_be<std::uint16_t>(&bytes[4]) & 0x7FF),
        .source_lid = load_be<std::uint16_t>(&bytes[6])};
  }
  void emit(MutableBytes out) const {
    store_be(&out[0], static_cast<std::uint16_t>(next));
    store_be(&out[2], destination_lid);
    store_be(&out[4], packet_words);
    store_be(&out[6], source_lid);
  }
  bool operator==(const LocalRouteHeader&) const = default;
};

// Its layout is IPv6's, its addresses are GIDs.
struct GlobalRouteHeader {
  static constexpr std::size_t header_bytes = 40;
  static constexpr std::uint8_t next_transport = 0x1B;

  Ipv6Header header;

  [[nodiscard]] static Result<GlobalRouteHeader, WireError> parse(Bytes bytes) {
    const auto header = Ipv6Header::parse(bytes);
    if (!header) return header.error();
    return GlobalRouteHeader{*header};
  }
  [[nodiscard]] bool leads_to_transport() const {
    return static_cast<std::uint8_t>(header.next_header) == next_transport;
  }
  bool operator==(const GlobalRouteHeader&) const = default;
};

}  // namespace weft::wire
