// The headers of tunnels and other encapsulations: how switches mirror traffic (ERSPAN, TZSP), and
// what carries it between machines (GRE, VXLAN, Geneve, MPLS, PPPoE). Each function returns the
// size of the header and what follows it. None of them allocates or throws.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/ethernet.h"

namespace weft::wire {

inline constexpr std::uint16_t vxlan_port = 4789;
inline constexpr std::uint16_t linux_vxlan_port = 8472;  // Linux before the port was assigned
inline constexpr std::uint16_t vxlan_gpe_port = 4790;
inline constexpr std::uint16_t geneve_port = 6081;
inline constexpr std::uint16_t mpls_port = 6635;
inline constexpr std::uint16_t tzsp_port = 37008;

struct TunnelHeader {
  enum class Kind : std::uint8_t {
    gre,
    gretap,  // Ethernet in GRE
    erspan_1,
    erspan_2,
    erspan_3,
    vxlan,
    vxlan_gpe,
    geneve,
    mpls,
    pppoe,
    tzsp,
    etherip,
    ipoib,
  };
  enum class Content : std::uint8_t {
    ethernet,
    network,  // `type` names it
    ip,       // IPv4 or IPv6, as the first four bits show
  };

  Kind kind = Kind::gre;
  Content content = Content::ethernet;
  EtherType type{};
  std::size_t size_bytes = 0;

  bool operator==(const TunnelHeader&) const = default;
};

// GRE version 0 with checksum, key and sequence number (RFC 2784, RFC 2890), and ERSPAN in it
// (draft-foschiano-erspan): type I has no header of its own and no sequence number. Version 1
// (PPTP) and source routing are bad_version.
[[nodiscard]] Result<TunnelHeader, WireError> parse_gre(Bytes bytes);
// RFC 7348. A header without a VNI, or with other bits set, is bad_value.
[[nodiscard]] Result<TunnelHeader, WireError> parse_vxlan(Bytes bytes);
// draft-ietf-nvo3-vxlan-gpe. A protocol that is not defined is bad_value.
[[nodiscard]] Result<TunnelHeader, WireError> parse_vxlan_gpe(Bytes bytes);
// RFC 8926. Control packets are bad_value.
[[nodiscard]] Result<TunnelHeader, WireError> parse_geneve(Bytes bytes);
// A whole label stack (RFC 3032), with the control word of an Ethernet pseudowire (RFC 4448 §4.6).
// The stack does not name its content: 4 and 6 in the first four bits are IP (RFC 4928 §3), 0 is a
// control word, and everything else Ethernet.
[[nodiscard]] Result<TunnelHeader, WireError> parse_mpls(Bytes bytes);
// The session stage of PPPoE (RFC 2516 §6), with IP in it. Other protocols of PPP are bad_value.
[[nodiscard]] Result<TunnelHeader, WireError> parse_pppoe(Bytes bytes);
// TaZmen Sniffer Protocol with Ethernet in it.
[[nodiscard]] Result<TunnelHeader, WireError> parse_tzsp(Bytes bytes);
// RFC 3378.
[[nodiscard]] Result<TunnelHeader, WireError> parse_etherip(Bytes bytes);
// IP over InfiniBand in a datagram of `wire_bytes` (RFC 4391 §6). Nothing announces it, so it is
// bad_value unless a whole IPv4, IPv6 or ARP packet of this length follows.
[[nodiscard]] Result<TunnelHeader, WireError> parse_ipoib(Bytes bytes, std::size_t wire_bytes);

}  // namespace weft::wire
