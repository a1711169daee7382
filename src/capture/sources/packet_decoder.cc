#include "capture/sources/packet_decoder_work.h"

#include <algorithm>

#include "base/bytes.h"
#include "wire/ib_link.h"
#include "wire/ip.h"

namespace weft::capture {
namespace {

constexpr std::uint16_t ethertype_roce_v1 = 0x8915;
// RFC 3168 §5: ECN is in the two low bits of the traffic class.
constexpr unsigned ecn_mask = 3;

namespace extension {
constexpr std::uint8_t hop_by_hop = 0;
constexpr std::uint8_t routing = 43;
constexpr std::uint8_t fragment = 44;
constexpr std::uint8_t authentication = 51;
constexpr std::uint8_t destination = 60;
constexpr std::uint8_t mobility = 135;
constexpr std::size_t min_bytes = 8;
}  // namespace extension

// Returns whether a header can be skipped. ESP is missing on purpose: what follows it is encrypted.
// A fragment header is handled apart, because it ends the chain.
bool is_extension(std::uint8_t protocol) {
  return protocol == extension::hop_by_hop || protocol == extension::routing ||
         protocol == extension::authentication || protocol == extension::destination ||
         protocol == extension::mobility;
}

// Returns the size of an extension header. RFC 8200 §4: units of 8 bytes beyond the first; RFC 4302
// §2.2: units of 4 bytes, minus 2.
std::size_t extension_bytes(std::uint8_t protocol, Bytes header) {
  const auto length = std::to_integer<std::size_t>(header[1]);
  return protocol == extension::authentication ? (length + 2) * 4 : (length + 1) * 8;
}

}  // namespace

PacketDecoder::PacketDecoder(TcpSegments& tcp, InfinibandPackets& infiniband)
    : work_(std::make_unique<Work>(tcp, infiniband)) {}
PacketDecoder::~PacketDecoder() = default;

void PacketDecoder::decode(const RawPacket& packet, const Stamp& stamp) {
  work_->decode(packet, stamp);
}

const PacketDecoder::Counts& PacketDecoder::counts() const {
  return work_->counts();
}

std::vector<PacketDecoder::Named> PacketDecoder::others() const {
  return work_->others();
}

std::vector<PacketDecoder::Named> PacketDecoder::tunnels() const {
  return work_->tunnels();
}

std::uint64_t PacketDecoder::dropped_fragments() const {
  return work_->dropped_fragments();
}

// Selects the decoder of the link layer.
void PacketDecoder::Work::decode(const RawPacket& packet, const Stamp& stamp) {
  stamp_ = stamp;
  depth_ = 0;
  reassembled_ = false;
  switch (packet.link_type) {
    case wire::link_type::ethernet:
      return link(packet, wire::parse_ethernet_link(packet.bytes));
    case wire::link_type::linux_cooked:
      return link(packet, wire::parse_linux_cooked(packet.bytes));
    case wire::link_type::linux_cooked_v2:
      return link(packet, wire::parse_linux_cooked_v2(packet.bytes));
    case wire::link_type::null:
    case wire::link_type::loop:
      return link(packet, wire::parse_loopback(packet.bytes));
    case wire::link_type::raw:
    case wire::link_type::raw_bsd:
    case wire::link_type::raw_openbsd:
    case wire::link_type::ipv4:
    case wire::link_type::ipv6:
      return link(packet, wire::parse_raw_ip(packet.bytes));
    case wire::link_type::erf:
      return erf(packet);
    case wire::link_type::infiniband:
      return native({packet.bytes, packet.wire_bytes});
    default:
      ++counts_.unknown_link;
  }
}

// Counts a header that cannot be decoded: cut by the snap length, or inconsistent.
void PacketDecoder::Work::problem(wire::WireError error) {
  ++(error == wire::WireError::truncated ? counts_.cut_short : counts_.malformed);
}

// Counts a packet of a protocol that is not decoded.
void PacketDecoder::Work::other(ProtocolCounts::Layer layer, std::uint16_t number) {
  ++counts_.other;
  others_.add(layer, number);
}

void PacketDecoder::Work::link(const RawPacket& packet,
                               Result<wire::LinkHeader, wire::WireError> header) {
  if (!header) {
    // Loopback packets of other address families are not damaged.
    if (header.error() == wire::WireError::bad_key)
      other(ProtocolCounts::Layer::loopback, 0);
    else
      problem(header.error());
    return;
  }
  network(header->type, Layer{packet.bytes, packet.wire_bytes}.after(header->size_bytes));
}

// Decodes the ERF header of capture cards; its length excludes padding.
void PacketDecoder::Work::erf(const RawPacket& packet) {
  const auto header = wire::ErfHeader::parse(packet.bytes);
  if (!header) return problem(header.error());
  Layer layer{.bytes = packet.bytes.subspan(header->size_bytes)};
  layer.shorten(header->wire_bytes);
  using Type = wire::ErfHeader::Type;
  if (header->is_ethernet()) return ethernet(layer);
  switch (header->type) {
    case Type::infiniband:
      return native(layer);
    case Type::ipv4:
      return ipv4(layer);
    case Type::ipv6:
      return ipv6(layer);
    default:
      ++counts_.unknown_link;
  }
}

// Selects the decoder by Ethertype. Types that are really lengths are LLC frames, which are counted
// by their first byte, the destination service access point.
void PacketDecoder::Work::network(wire::EtherType type, Layer layer) {
  if (type == wire::EtherType::ipv4) return ipv4(layer);
  if (type == wire::EtherType::ipv6) return ipv6(layer);
  const auto number = static_cast<std::uint16_t>(type);
  if (number == ethertype_roce_v1) return roce_v1(layer);
  if (ethernet_tunnel(number, layer)) return;
  constexpr std::uint16_t first_type = 0x600;  // IEEE 802.3: smaller numbers are lengths
  if (number >= first_type) return other(ProtocolCounts::Layer::ethernet, number);
  const std::byte service = layer.bytes.empty() ? std::byte{} : layer.bytes[0];
  other(ProtocolCounts::Layer::llc, std::to_integer<std::uint16_t>(service));
}

// A total length of 0 comes from segmentation offload: the packet fills the rest of the frame.
void PacketDecoder::Work::ipv4(Layer layer) {
  const auto header = wire::Ipv4Header::parse(layer.bytes);
  if (!header) return problem(header.error());
  // Short Ethernet frames are padded to 60 bytes, so the IP length and not the frame ends the
  // packet.
  if (header->total_bytes != 0) layer.shorten(header->total_bytes);
  IpPacket ip{.source = HostAddress::ipv4(header->source.data()),
              .destination = HostAddress::ipv4(header->destination.data()),
              .protocol = static_cast<std::uint8_t>(header->protocol),
              .ecn = static_cast<std::uint8_t>(header->traffic_class & ecn_mask),
              .hop_limit = header->ttl,
              .id = header->id,
              .begin = layer.bytes.data()};
  const Bytes headers = layer.bytes.first(header->size());
  layer = layer.after(header->size());
  if (!header->more_fragments && header->fragment_offset_bytes == 0) return transport(ip, layer);
  fragment(ip,
           {.id = header->id,
            .offset_bytes = header->fragment_offset_bytes,
            .more = header->more_fragments,
            .headers = headers},
           layer);
}

void PacketDecoder::Work::ipv6(Layer layer) {
  const auto header = wire::Ipv6Header::parse(layer.bytes);
  if (!header) return problem(header.error());
  // A length of 0 is a jumbogram or segmentation offload; both fill the rest of the frame.
  if (header->payload_bytes != 0) {
    layer.shorten(wire::Ipv6Header::header_bytes + header->payload_bytes);
  }
  IpPacket ip{.source = HostAddress::ipv6(header->source.data()),
              .destination = HostAddress::ipv6(header->destination.data()),
              .ecn = static_cast<std::uint8_t>(header->traffic_class & ecn_mask),
              .hop_limit = header->hop_limit,
              .begin = layer.bytes.data()};
  layer = layer.after(wire::Ipv6Header::header_bytes);
  if (ipv6_extensions(ip, layer, static_cast<std::uint8_t>(header->next_header))) {
    transport(ip, layer);
  }
}

// Skips the extension headers (RFC 8200 §4) and sets the protocol. Returns false if the packet is
// damaged or was a fragment.
bool PacketDecoder::Work::ipv6_extensions(IpPacket& ip, Layer& layer, std::uint8_t next) {
  ip.protocol = next;
  while (is_extension(ip.protocol)) {
    if (layer.bytes.size() < extension::min_bytes) {
      problem(wire::WireError::truncated);
      return false;
    }
    const std::size_t size = extension_bytes(ip.protocol, layer.bytes);
    if (layer.bytes.size() < size) {
      problem(wire::WireError::truncated);
      return false;
    }
    ip.protocol = std::to_integer<std::uint8_t>(layer.bytes[0]);
    layer = layer.after(size);
  }
  if (ip.protocol != extension::fragment) return true;
  return ipv6_fragment(ip, layer);
}

// Decodes a fragment header (RFC 8200 §4.5) and adds the fragment. Always returns false, because
// the packet is handled then.
bool PacketDecoder::Work::ipv6_fragment(const IpPacket& ip, const Layer& layer) {
  const auto header = wire::Ipv6Fragment::parse(layer.bytes);
  if (!header) {
    problem(header.error());
    return false;
  }
  IpPacket inner = ip;
  inner.protocol = static_cast<std::uint8_t>(header->next_header);
  const auto headers_bytes = static_cast<std::size_t>(layer.bytes.data() - ip.begin);
  fragment(inner,
           {.id = header->id,
            .offset_bytes = header->offset_bytes,
            .more = header->more_fragments,
            .headers = Bytes{ip.begin, headers_bytes}},
           layer.after(extension::min_bytes));
  return false;
}

// Adds a fragment, and continues with the datagram if it is complete. A fragment that the snap
// length cut cannot be used. Fragments inside a reassembled datagram are not decoded: they would
// let one packet cause unlimited work.
void PacketDecoder::Work::fragment(const IpPacket& ip, IpFragment piece, const Layer& layer) {
  ++counts_.fragments;
  if (reassembled_) return problem(wire::WireError::bad_length);
  if (layer.bytes.size() < layer.wire_bytes) {
    ++counts_.cut_short;
    return;
  }
  piece.source = ip.source;
  piece.destination = ip.destination;
  piece.protocol = ip.protocol;
  piece.payload = layer.bytes;
  piece.time_ns = stamp_.time_ns;
  const auto* whole = fragments_.add(piece);
  if (!whole) return;
  reassembled_ = true;
  IpPacket joined = ip;
  joined.begin = whole->headers.data();
  joined.protocol = whole->protocol;
  joined.from_fragments = true;
  // In the first fragment extension headers may follow the fragment header.
  Layer inner{whole->payload, whole->payload.size()};
  const bool is_ipv6 = ip.source.kind == HostAddress::Kind::ipv6;
  if (!is_ipv6 || ipv6_extensions(joined, inner, whole->protocol)) {
    transport(joined, inner);
  }
}

void PacketDecoder::Work::transport(const IpPacket& ip, const Layer& layer) {
  if (ip.protocol == static_cast<std::uint8_t>(wire::IpProtocol::tcp)) return tcp(ip, layer);
  if (ip.protocol == static_cast<std::uint8_t>(wire::IpProtocol::udp)) return udp(ip, layer);
  if (!ip_tunnel(ip, layer)) other(ProtocolCounts::Layer::ip, ip.protocol);
}

// Returns whether the capture has this segment already. Copies of a segment are equal in every
// field; a retransmission differs in the ID of IPv4. On IPv6 only the timestamps of TCP may differ,
// and not within a millisecond, so there copies are recognised by their regularity.
bool PacketDecoder::Work::is_copy(const IpPacket& ip, const wire::TcpHeader& header,
                                  const Layer& payload) {
  const bool has_id = ip.source.kind != HostAddress::Kind::ipv6;
  // Segments without payload may be equal on purpose: duplicate acknowledgements (RFC 5681 §2).
  if (payload.wire_bytes == 0 && has_id) return false;
  CopyFilter::Key key;
  key.add(ip.source.hash()).add(ip.destination.hash());
  key.add(std::uint64_t{header.source_port} << 48 | std::uint64_t{header.destination_port} << 32 |
          header.sequence);
  key.add(std::uint64_t{header.acknowledgement} << 32 | std::uint64_t{header.checksum} << 16 |
          ip.id);
  key.add(std::uint64_t{payload.wire_bytes} << 32 | std::uint64_t{header.window} << 8 |
          header.flags);
  const bool again = copies_.is_copy(key, stamp_);
  if (has_id) return again;
  const std::size_t sender = ip.source.hash() * 31 + ip.destination.hash() * 17 +
                             (std::size_t{header.source_port} << 16 | header.destination_port);
  const bool regular = copy_rates_.add(sender, again);
  return again && regular && payload.wire_bytes > 0;
}

void PacketDecoder::Work::tcp(const IpPacket& ip, const Layer& layer) {
  const auto header = wire::TcpHeader::parse(layer.bytes);
  if (!header) return problem(header.error());
  const Layer payload = layer.after(header->size());
  if (is_copy(ip, *header, payload)) {
    ++counts_.copies;
    return;
  }
  tcp_.on_segment({.stamp = stamp_,
                   .source = ip.source,
                   .destination = ip.destination,
                   .header = *header,
                   .payload = payload.bytes,
                   .wire_bytes = payload.wire_bytes,
                   .hop_limit = ip.hop_limit});
}

// Passes RoCE v2 packets on (UDP port 4791, Annex A17). The header bytes are needed for the ICRC.
void PacketDecoder::Work::udp(const IpPacket& ip, const Layer& layer) {
  const auto header = wire::UdpHeader::parse(layer.bytes);
  if (!header) return problem(header.error());
  Layer payload = layer;
  // A length of 0 comes from segmentation offload or a jumbogram (RFC 2675 §4).
  if (header->length_bytes != 0) {
    payload.shorten(std::min<std::size_t>(header->length_bytes, layer.wire_bytes));
  }
  payload = payload.after(wire::UdpHeader::header_bytes);
  if (header->destination_port != wire::roce_v2_port) {
    if (!udp_tunnel(*header, payload)) {
      other(ProtocolCounts::Layer::udp, header->destination_port);
    }
    return;
  }

  // In a frame the headers are contiguous; a reassembled datagram has its IP header elsewhere.
  const std::byte* begin = ip.from_fragments ? layer.bytes.data() : ip.begin;
  const auto network_bytes = static_cast<std::size_t>(payload.bytes.data() - begin);
  infiniband_.on_packet({.stamp = stamp_,
                         .carrier = IbPacket::Carrier::roce_v2,
                         .source = ip.source,
                         .destination = ip.destination,
                         .network = {begin, network_bytes},
                         .transport = payload.bytes,
                         .wire_bytes = payload.wire_bytes,
                         .ecn = ip.ecn,
                         .hop_limit = ip.hop_limit,
                         .source_port = header->source_port,
                         .from_fragments = ip.from_fragments});
}

// Passes RoCE v1 packets on (Annex A16): the GRH directly follows the Ethernet header.
void PacketDecoder::Work::roce_v1(Layer layer) {
  const auto global = wire::GlobalRouteHeader::parse(layer.bytes);
  if (!global) return problem(global.error());
  if (!global->leads_to_transport()) return other(ProtocolCounts::Layer::infiniband, 0);
  layer.shorten(wire::GlobalRouteHeader::header_bytes + global->header.payload_bytes);
  const Bytes network = layer.bytes.first(wire::GlobalRouteHeader::header_bytes);
  layer = layer.after(network.size());
  infiniband_.on_packet(
      {.stamp = stamp_,
       .carrier = IbPacket::Carrier::roce_v1,
       .source = HostAddress::gid(global->header.source.data()),
       .destination = HostAddress::gid(global->header.destination.data()),
       .network = network,
       .transport = layer.bytes,
       .wire_bytes = layer.wire_bytes,
       .ecn = static_cast<std::uint8_t>(global->header.traffic_class & ecn_mask)});
}

// Passes native InfiniBand packets on: LRH, and GRH if the LRH announces it.
void PacketDecoder::Work::native(Layer layer) {
  using Next = wire::LocalRouteHeader::Next;
  const auto local = wire::LocalRouteHeader::parse(layer.bytes);
  if (!local) return problem(local.error());
  std::size_t network_bytes = wire::LocalRouteHeader::header_bytes;
  // The length includes the ICRC; a VCRC may follow.
  const std::size_t length = std::size_t{local->packet_words} * 4;
  if (length < network_bytes) return problem(wire::WireError::bad_length);
  IbPacket packet{.stamp = stamp_,
                  .carrier = IbPacket::Carrier::native,
                  .source = HostAddress::lid(local->source_lid),
                  .destination = HostAddress::lid(local->destination_lid)};
  if (local->next == Next::global) {
    const auto global = wire::GlobalRouteHeader::parse(layer.bytes.subspan(network_bytes));
    if (!global) return problem(global.error());
    network_bytes += wire::GlobalRouteHeader::header_bytes;
    if (!global->leads_to_transport() || length < network_bytes) {
      return other(ProtocolCounts::Layer::infiniband, 0);
    }
    packet.source = HostAddress::gid(global->header.source.data());
    packet.destination = HostAddress::gid(global->header.destination.data());
    packet.ecn = static_cast<std::uint8_t>(global->header.traffic_class & ecn_mask);
  } else if (local->next != Next::transport) {
    return other(ProtocolCounts::Layer::infiniband, 0);
  }
  layer.shorten(length);
  packet.network = layer.bytes.first(network_bytes);
  layer = layer.after(network_bytes);
  if (infiniband_tunnel(packet.network, layer)) return;
  packet.transport = layer.bytes;
  packet.wire_bytes = layer.wire_bytes;
  infiniband_.on_packet(packet);
}

}  // namespace weft::capture
