// The part of PacketDecoder that decodes tunnels: packets in packets.
#include "capture/sources/packet_decoder_work.h"
#include "wire/ib_cm.h"
#include "wire/ib_transport.h"
#include "wire/icrc.h"

namespace weft::capture {
namespace {

// Real networks nest three or four; more is an attack on the decoder.
// Each tunnel is a level of recursion, so this bounds the stack as well.
constexpr unsigned max_depth = 8;

// IANA protocol numbers: RFC 2003, 2473, 2784 (GRE), 3378 (EtherIP), 4023 (MPLS).
namespace ip_number {
constexpr std::uint8_t ipv4 = 4;
constexpr std::uint8_t ipv6 = 41;
constexpr std::uint8_t gre = 47;
constexpr std::uint8_t etherip = 97;
constexpr std::uint8_t mpls = 137;
}  // namespace ip_number

namespace ethertype {
constexpr std::uint16_t mpls = 0x8847;
constexpr std::uint16_t mpls_multicast = 0x8848;
constexpr std::uint16_t pppoe_session = 0x8864;
}  // namespace ethertype

}  // namespace

// Counts one more tunnel around the packet. Returns false if there are too many.
bool PacketDecoder::Work::enter(ProtocolCounts::Layer layer, std::uint16_t number) {
  if (++depth_ > max_depth) {
    problem(wire::WireError::bad_length);
    return false;
  }
  tunnels_.add(layer, number);
  return true;
}

void PacketDecoder::Work::ethernet(Layer layer) {
  const auto header = wire::parse_ethernet_link(layer.bytes);
  if (!header) return problem(header.error());
  network(header->type, layer.after(header->size_bytes));
}

void PacketDecoder::Work::raw_ip(const Layer& layer) {
  const auto header = wire::parse_raw_ip(layer.bytes);
  if (!header) return problem(header.error());
  network(header->type, layer);
}

// A tunnel with a protocol in it that is not decoded is counted by its own error.
void PacketDecoder::Work::inside(const TunnelResult& header, const Layer& layer) {
  if (!header) return problem(header.error());
  if (!enter(ProtocolCounts::Layer::tunnel, static_cast<std::uint16_t>(header->kind))) return;
  const Layer content = layer.after(header->size_bytes);
  switch (header->content) {
    case wire::TunnelHeader::Content::ethernet:
      return ethernet(content);
    case wire::TunnelHeader::Content::network:
      return network(header->type, content);
    case wire::TunnelHeader::Content::ip:
      return raw_ip(content);
  }
}

// IP over InfiniBand in datagrams (RFC 4391); its connected mode (RFC 4755) has messages of several
// packets, which stay Sends. A packet with a wrong ICRC is no tunnel: the transport counts it.
bool PacketDecoder::Work::infiniband_tunnel(Bytes network, const Layer& layer) {
  const auto packet = wire::IbPacketView::check(layer.bytes, layer.wire_bytes);
  if (!packet || packet->bth().opcode.transport != wire::IbTransport::ud ||
      packet->bth().destination_qp <= wire::general_services_qp) {
    return false;
  }
  const auto header = wire::parse_ipoib(packet->payload(), packet->payload_wire_bytes());
  if (!header) return false;
  const auto icrc = packet->icrc();
  if (icrc && *icrc != wire::Icrc::native(network, packet->covered()).value()) return false;
  inside(header, {packet->payload(), packet->payload_wire_bytes()});
  return true;
}

bool PacketDecoder::Work::ip_tunnel(const IpPacket& ip, const Layer& layer) {
  switch (ip.protocol) {
    case ip_number::ipv4:
    case ip_number::ipv6:
      if (!enter(ProtocolCounts::Layer::ip, ip.protocol)) return true;
      ip.protocol == ip_number::ipv4 ? ipv4(layer) : ipv6(layer);
      return true;
    case ip_number::gre: {
      const auto header = wire::parse_gre(layer.bytes);
      // GRE of an unknown form, such as version 1 of PPTP, is another protocol and not damage.
      if (!header && header.error() != wire::WireError::truncated) return false;
      inside(header, layer);
      return true;
    }
    case ip_number::etherip:
      inside(wire::parse_etherip(layer.bytes), layer);
      return true;
    case ip_number::mpls:
      inside(wire::parse_mpls(layer.bytes), layer);
      return true;
    default:
      return false;
  }
}

// A datagram to the port of a tunnel need not be one, so a header that does not fit is not damage.
bool PacketDecoder::Work::udp_tunnel(const wire::UdpHeader& header, const Layer& payload) {
  const auto parse = [&]() -> TunnelResult {
    switch (header.destination_port) {
      case wire::vxlan_port:
      case wire::linux_vxlan_port:
        return wire::parse_vxlan(payload.bytes);
      case wire::vxlan_gpe_port:
        return wire::parse_vxlan_gpe(payload.bytes);
      case wire::geneve_port:
        return wire::parse_geneve(payload.bytes);
      case wire::mpls_port:
        return wire::parse_mpls(payload.bytes);
      case wire::tzsp_port:
        return wire::parse_tzsp(payload.bytes);
      default:
        return wire::WireError::bad_key;
    }
  };
  const TunnelResult found = parse();
  if (!found) return false;
  inside(found, payload);
  return true;
}

bool PacketDecoder::Work::ethernet_tunnel(std::uint16_t type, const Layer& layer) {
  if (type == ethertype::mpls || type == ethertype::mpls_multicast) {
    inside(wire::parse_mpls(layer.bytes), layer);
    return true;
  }
  if (type != ethertype::pppoe_session) return false;
  const auto header = wire::parse_pppoe(layer.bytes);
  if (!header && header.error() == wire::WireError::bad_value) return false;
  inside(header, layer);
  return true;
}

}  // namespace weft::capture
