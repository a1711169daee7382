#include "wire/tunnel.h"

#include <optional>

#include "base/byte_reader.h"
#include "wire/ip.h"

namespace weft::wire {
namespace {

using Kind = TunnelHeader::Kind;
using Content = TunnelHeader::Content;

namespace gre {
constexpr std::uint16_t has_checksum = 0x8000;
constexpr std::uint16_t has_routing = 0x4000;
constexpr std::uint16_t has_key = 0x2000;
constexpr std::uint16_t has_sequence = 0x1000;
constexpr std::uint16_t version_mask = 0x0007;
constexpr std::uint16_t ethernet = 0x6558;  // transparent Ethernet bridging
constexpr std::uint16_t erspan = 0x88BE;    // types I and II
constexpr std::uint16_t erspan_3 = 0x22EB;
}  // namespace gre

constexpr std::size_t word_bytes = 4;
constexpr std::size_t erspan_2_bytes = 8;
constexpr std::size_t erspan_3_bytes = 12;
constexpr std::size_t erspan_3_more_bytes = 8;  // the optional platform header

// Protocols of "Next Protocol" in VXLAN-GPE.
std::optional<TunnelHeader> gpe_content(std::uint8_t protocol) {
  switch (protocol) {
    case 1:
      return TunnelHeader{Kind::vxlan_gpe, Content::network, EtherType::ipv4};
    case 2:
      return TunnelHeader{Kind::vxlan_gpe, Content::network, EtherType::ipv6};
    case 3:
      return TunnelHeader{Kind::vxlan_gpe, Content::ethernet};
    default:
      return {};
  }
}

// The header of ERSPAN type III may be followed by a platform header: its last bit shows it.
Result<TunnelHeader, WireError> parse_erspan_3(ByteReader in) {
  const Bytes header = in.bytes(erspan_3_bytes);
  if (!in.ok()) return WireError::truncated;
  constexpr unsigned version = 2;
  if (std::to_integer<unsigned>(header[0]) >> 4 != version) return WireError::bad_version;
  const unsigned last = std::to_integer<unsigned>(header[erspan_3_bytes - 1]);
  if ((last & 1U) != 0) in.skip(erspan_3_more_bytes);
  if (!in.ok()) return WireError::truncated;
  // Frame type: 0 is Ethernet, 2 is IP.
  const unsigned frame_type = std::to_integer<unsigned>(header[erspan_3_bytes - 2]) >> 2 & 31U;
  if (frame_type == 2) return TunnelHeader{Kind::erspan_3, Content::ip, {}, in.position()};
  if (frame_type != 0) return WireError::bad_value;
  return TunnelHeader{Kind::erspan_3, Content::ethernet, {}, in.position()};
}

}  // namespace

Result<TunnelHeader, WireError> parse_gre(Bytes bytes) {
  ByteReader in(bytes);
  const std::uint16_t flags = in.be16();
  const std::uint16_t protocol = in.be16();
  if (!in.ok()) return WireError::truncated;
  // RFC 2784 has dropped source routing of RFC 1701; version 1 is PPTP's, with another layout.
  if ((flags & (gre::has_routing | gre::version_mask)) != 0) return WireError::bad_version;
  const bool sequenced = (flags & gre::has_sequence) != 0;
  // RFC 2890: checksum, key and sequence number are present as the flags state, in this order.
  if ((flags & gre::has_checksum) != 0) in.skip(word_bytes);
  if ((flags & gre::has_key) != 0) in.skip(word_bytes);
  if (sequenced) in.skip(word_bytes);
  if (protocol == gre::erspan_3) return parse_erspan_3(in);
  // Types I and II have the same protocol number. Only type II has a sequence number and a header.
  if (protocol == gre::erspan && sequenced) {
    constexpr unsigned version = 1;
    const Bytes header = in.bytes(erspan_2_bytes);
    if (!in.ok()) return WireError::truncated;
    if (std::to_integer<unsigned>(header[0]) >> 4 != version) return WireError::bad_version;
    return TunnelHeader{Kind::erspan_2, Content::ethernet, {}, in.position()};
  }
  if (!in.ok()) return WireError::truncated;
  if (protocol == gre::erspan) {
    return TunnelHeader{Kind::erspan_1, Content::ethernet, {}, in.position()};
  }
  if (protocol == gre::ethernet) {
    return TunnelHeader{Kind::gretap, Content::ethernet, {}, in.position()};
  }
  return TunnelHeader{Kind::gre, Content::network, EtherType{protocol}, in.position()};
}

// RFC 7348 §5: only the flag of a valid network identifier may be set.
Result<TunnelHeader, WireError> parse_vxlan(Bytes bytes) {
  constexpr std::uint8_t has_vni = 0x08;
  ByteReader in(bytes);
  const std::uint8_t flags = in.u8();
  in.skip(7);
  if (!in.ok()) return WireError::truncated;
  // Group policy (draft-smith-vxlan-group-policy) uses the highest bit.
  if ((flags & 0x7F) != has_vni) return WireError::bad_value;
  return TunnelHeader{Kind::vxlan, Content::ethernet, {}, in.position()};
}

Result<TunnelHeader, WireError> parse_vxlan_gpe(Bytes bytes) {
  constexpr std::uint8_t has_protocol = 0x04;
  constexpr std::uint8_t version_mask = 0x30;
  ByteReader in(bytes);
  const std::uint8_t flags = in.u8();
  in.skip(2);
  const std::uint8_t protocol = in.u8();
  in.skip(word_bytes);
  if (!in.ok()) return WireError::truncated;
  if ((flags & version_mask) != 0) return WireError::bad_version;
  // Without a protocol it is plain VXLAN.
  constexpr std::uint8_t ethernet = 3;
  auto header = gpe_content((flags & has_protocol) != 0 ? protocol : ethernet);
  if (!header) return WireError::bad_value;
  header->size_bytes = in.position();
  return *header;
}

// RFC 8926 §3.4. Control packets carry no frame.
Result<TunnelHeader, WireError> parse_geneve(Bytes bytes) {
  constexpr std::uint8_t control = 0x80;
  ByteReader in(bytes);
  const std::uint8_t first = in.u8();
  const std::uint8_t flags = in.u8();
  const std::uint16_t protocol = in.be16();
  in.skip(word_bytes);
  // RFC 8926 §3.4: the length of the options has six bits and counts words of four bytes.
  const std::size_t options_bytes = std::size_t{first & 0x3FU} * word_bytes;
  in.skip(options_bytes);
  if (!in.ok()) return WireError::truncated;
  if (first >> 6 != 0) return WireError::bad_version;
  if ((flags & control) != 0) return WireError::bad_value;
  if (protocol == gre::ethernet) {
    return TunnelHeader{Kind::geneve, Content::ethernet, {}, in.position()};
  }
  return TunnelHeader{Kind::geneve, Content::network, EtherType{protocol}, in.position()};
}

// The label stack does not state what follows (RFC 3032), so the first four bits decide: 4 and 6
// are IP, 0 is a control word (RFC 4385), all else an Ethernet frame without one.
Result<TunnelHeader, WireError> parse_mpls(Bytes bytes) {
  // RFC 3032 §2.1: each entry of the stack takes four bytes, and the last one has this bit.
  constexpr std::uint32_t bottom_of_stack = 0x100;
  ByteReader in(bytes);
  std::uint32_t label = 0;
  do {
    label = in.be32();
  } while (in.ok() && (label & bottom_of_stack) == 0);
  if (!in.ok() || in.left() == 0) return WireError::truncated;
  const unsigned nibble = std::to_integer<unsigned>(in.rest()[0]) >> 4;
  if (nibble == 4 || nibble == 6) {
    return TunnelHeader{Kind::mpls, Content::ip, {}, in.position()};
  }
  if (nibble == 0) in.skip(word_bytes);
  if (!in.ok()) return WireError::truncated;
  return TunnelHeader{Kind::mpls, Content::ethernet, {}, in.position()};
}

// RFC 2516: code 0 is session data, all others are discovery.
Result<TunnelHeader, WireError> parse_pppoe(Bytes bytes) {
  constexpr std::uint8_t version_and_type = 0x11;
  // These are protocol numbers of PPP and not Ethertypes.
  constexpr std::uint16_t ipv4 = 0x0021;
  constexpr std::uint16_t ipv6 = 0x0057;
  ByteReader in(bytes);
  const std::uint8_t version = in.u8();
  const std::uint8_t code = in.u8();
  in.skip(word_bytes);  // session and length
  const std::uint16_t protocol = in.be16();
  if (!in.ok()) return WireError::truncated;
  if (version != version_and_type) return WireError::bad_version;
  if (code != 0 || (protocol != ipv4 && protocol != ipv6)) return WireError::bad_value;
  return TunnelHeader{Kind::pppoe, Content::network,
                      protocol == ipv4 ? EtherType::ipv4 : EtherType::ipv6, in.position()};
}

// TaZmen Sniffer Protocol, which has no RFC: a fixed header, then tags up to the one that ends
// them.
Result<TunnelHeader, WireError> parse_tzsp(Bytes bytes) {
  constexpr std::uint8_t version = 1;
  constexpr std::uint8_t received = 0;
  constexpr std::uint8_t to_transmit = 1;
  constexpr std::uint16_t ethernet = 1;
  constexpr std::uint8_t tag_padding = 0;
  constexpr std::uint8_t tag_end = 1;
  ByteReader in(bytes);
  const std::uint8_t found = in.u8();
  const std::uint8_t type = in.u8();
  const std::uint16_t protocol = in.be16();
  if (!in.ok()) return WireError::truncated;
  if (found != version) return WireError::bad_version;
  if ((type != received && type != to_transmit) || protocol != ethernet) {
    return WireError::bad_value;
  }
  for (std::uint8_t tag = in.u8(); in.ok() && tag != tag_end; tag = in.u8()) {
    // Padding and end have no length; every other tag does.
    if (tag != tag_padding) in.skip(in.u8());
  }
  if (!in.ok()) return WireError::truncated;
  return TunnelHeader{Kind::tzsp, Content::ethernet, {}, in.position()};
}

// RFC 3378: version 3, and twelve reserved bits that are zero.
Result<TunnelHeader, WireError> parse_etherip(Bytes bytes) {
  constexpr std::uint16_t version_3 = 0x3000;
  ByteReader in(bytes);
  const std::uint16_t header = in.be16();
  if (!in.ok()) return WireError::truncated;
  if (header != version_3) return WireError::bad_version;
  return TunnelHeader{Kind::etherip, Content::ethernet, {}, in.position()};
}

Result<TunnelHeader, WireError> parse_ipoib(Bytes bytes, std::size_t wire_bytes) {
  constexpr std::uint16_t arp = 0x0806;
  constexpr std::uint16_t infiniband_hardware = 32;
  ByteReader in(bytes);
  const EtherType type{in.be16()};
  const std::uint16_t reserved = in.be16();
  if (!in.ok()) return WireError::truncated;
  const TunnelHeader header{Kind::ipoib, Content::network, type, in.position()};
  const std::size_t left = wire_bytes - std::min(wire_bytes, header.size_bytes);
  bool fits = false;
  if (type == EtherType::ipv4) {
    const auto ip = Ipv4Header::parse(in.rest());
    fits = ip && ip->total_bytes == left;
  } else if (type == EtherType::ipv6) {
    const auto ip = Ipv6Header::parse(in.rest());
    fits = ip && std::size_t{Ipv6Header::header_bytes} + ip->payload_bytes == left;
  } else if (static_cast<std::uint16_t>(type) == arp) {
    fits = in.be16() == infiniband_hardware && in.ok();
  }
  if (reserved != 0 || !fits) return WireError::bad_value;
  return header;
}

}  // namespace weft::wire
