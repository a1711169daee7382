// The link layers of captures besides plain Ethernet: Linux cooked (v1, v2), loopback, ERF and VLAN
// tags. Each function returns the size of the header and the protocol that follows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/ethernet.h"

namespace weft::wire {

// LINKTYPE_ values of capture files (https://www.tcpdump.org/linktypes.html).
namespace link_type {
inline constexpr std::uint16_t null = 0;
inline constexpr std::uint16_t ethernet = 1;
inline constexpr std::uint16_t raw_bsd = 12;      // DLT_RAW as some systems store it
inline constexpr std::uint16_t raw_openbsd = 14;  // DLT_RAW as OpenBSD stores it
inline constexpr std::uint16_t raw = 101;
inline constexpr std::uint16_t loop = 108;
inline constexpr std::uint16_t linux_cooked = 113;
inline constexpr std::uint16_t erf = 197;
inline constexpr std::uint16_t ipv4 = 228;
inline constexpr std::uint16_t ipv6 = 229;
inline constexpr std::uint16_t infiniband = 247;
inline constexpr std::uint16_t linux_cooked_v2 = 276;
}  // namespace link_type

// The header before the network layer of a packet.
struct LinkHeader {
  std::size_t size_bytes = 0;
  EtherType type = EtherType::ipv4;

  bool operator==(const LinkHeader&) const = default;
};

// Ethernet with any number of VLAN tags (IEEE 802.1Q, 802.1ad and its predecessor 0x9100).
[[nodiscard]] Result<LinkHeader, WireError> parse_ethernet_link(Bytes bytes);
[[nodiscard]] Result<LinkHeader, WireError> parse_linux_cooked(Bytes bytes);
[[nodiscard]] Result<LinkHeader, WireError> parse_linux_cooked_v2(Bytes bytes);
// NULL, in the byte order of the machine that captured, and LOOP, in network order. The value of
// the address family shows which order it is.
[[nodiscard]] Result<LinkHeader, WireError> parse_loopback(Bytes bytes);
// IP without a link layer. The version at the beginning of the IP header selects the type.
[[nodiscard]] Result<LinkHeader, WireError> parse_raw_ip(Bytes bytes);

// The Extensible Record Format of Endace: each packet of such a capture begins with this header.
struct ErfHeader {
  static constexpr std::size_t min_header_bytes = 16;

  enum class Type : std::uint8_t {  // values outside this list survive as values
    ethernet = 2,
    color_ethernet = 11,
    dsm_ethernet = 16,
    color_hash_ethernet = 20,
    infiniband = 21,
    ipv4 = 22,
    ipv6 = 23,
  };
  Type type = Type::ethernet;
  // With extension headers, and with the two bytes of padding that Ethernet types have.
  std::size_t size_bytes = min_header_bytes;
  std::uint16_t wire_bytes = 0;  // of the packet behind the header

  [[nodiscard]] static Result<ErfHeader, WireError> parse(Bytes bytes);
  [[nodiscard]] bool is_ethernet() const;
  bool operator==(const ErfHeader&) const = default;
};

}  // namespace weft::wire
