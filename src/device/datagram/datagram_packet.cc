#include "device/datagram/datagram_packet.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/guarded_memory.h"
#include "device/addresses.h"
#include "wire/icrc.h"

namespace weft::device {
namespace {

wire::Ipv6Address ipv6_of(const sockaddr_storage& address) {
  const ibv_gid gid = gid_of(address);
  wire::Ipv6Address bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  return bytes;
}

// By way of the GID, because an IPv4 address may come as IPv4 or in mapped form.
wire::Ipv4Address ipv4_of(const sockaddr_storage& address) {
  const wire::Ipv6Address mapped = ipv6_of(address);
  return {mapped[12], mapped[13], mapped[14], mapped[15]};
}

// The ICRC of RoCE v2 begins with the IP and UDP headers (InfiniBand Architecture Specification,
// Annex A17).
std::uint32_t icrc_of(const DatagramHeaders& network, const wire::IbPacketView& packet) {
  return wire::Icrc::roce_v2(network.bytes(), packet.covered()).value();
}

std::size_t whole_bytes(const wire::IbPacketView& packet) {
  return packet.covered().size() + wire::IbPacketView::icrc_bytes;
}

}  // namespace

// The ICRC excludes fields that routers change (Annex A17); Icrc::roce_v2() masks them.
DatagramHeaders::DatagramHeaders(const DatagramRoute& route, std::size_t packet_bytes) {
  const auto udp_length = static_cast<std::uint16_t>(udp_bytes + packet_bytes);
  if (route.destination.ss_family == AF_INET) {
    wire::Ipv4Header header;
    header.traffic_class = route.traffic_class;
    header.total_bytes = static_cast<std::uint16_t>(header.size() + udp_length);
    header.dont_fragment = true;
    header.ttl = route.hop_limit;
    header.protocol = wire::IpProtocol::udp;
    header.source = ipv4_of(route.source);
    header.destination = ipv4_of(route.destination);
    header.emit(bytes_);
    ip_bytes_ = header.size();
  } else {
    wire::Ipv6Header header;
    header.traffic_class = route.traffic_class;
    header.payload_bytes = udp_length;
    header.next_header = wire::IpProtocol::udp;
    header.hop_limit = route.hop_limit;
    header.source = ipv6_of(route.source);
    header.destination = ipv6_of(route.destination);
    header.emit(bytes_);
    ip_bytes_ = wire::Ipv6Header::header_bytes;
  }
  const wire::UdpHeader udp{.source_port = port_of(route.source),
                            .destination_port = port_of(route.destination),
                            .length_bytes = udp_length};
  udp.emit(MutableBytes(bytes_).subspan(ip_bytes_));
}

// An IPv6 header fills the 40 bytes; an IPv4 header is at their end, after zeros, as adapters place
// it.
void DatagramHeaders::emit_grh(MutableBytes out) const {
  const std::size_t zeros = grh_bytes - ip_bytes_;
  std::fill_n(out.begin(), zeros, std::byte{0});
  std::copy_n(bytes_.begin(), ip_bytes_, out.begin() + static_cast<std::ptrdiff_t>(zeros));
}

// The message is copied, so the caller's memory is free when this returns. Packets are padded to a
// multiple of 4.
std::vector<std::byte> make_datagram(const DatagramRoute& route, wire::IbHeaders headers,
                                     std::span<const iovec> message) {
  std::size_t message_bytes = 0;
  for (const iovec& piece : message) message_bytes += piece.iov_len;
  // BTH counts the pad in two bits, and the receiver takes it off again.
  headers.bth.pad_bytes = static_cast<std::uint8_t>((4 - message_bytes % 4) % 4);
  const std::size_t covered = headers.size() + message_bytes + headers.bth.pad_bytes;
  std::vector<std::byte> packet(covered + wire::IbPacketView::icrc_bytes);
  headers.emit(packet);
  std::byte* at = packet.data() + headers.size();
  for (const iovec& piece : message) {
    // The memory was registered and is not mapped any more: the request fails with LOC_PROT_ERR.
    if (!guarded_load(at, piece.iov_base, piece.iov_len)) return {};
    at += piece.iov_len;
  }
  const DatagramHeaders network(route, packet.size());
  const auto icrc = wire::Icrc::roce_v2(network.bytes(), Bytes(packet).first(covered));
  wire::store_icrc(packet.data() + covered, icrc.value());
  return packet;
}

// Rebuilds the network headers from the addresses that the socket reported.
bool icrc_is_right(const DatagramRoute& route, const wire::IbPacketView& packet) {
  return packet.icrc() == icrc_of(DatagramHeaders(route, whole_bytes(packet)), packet);
}

// Captures show the packet at RoCE's UDP port, which the ICRC covers. The difference between the
// received and the computed ICRC is carried over, so that a wrong ICRC stays visible.
std::uint32_t icrc_at_roce_port(const DatagramRoute& route, const wire::IbPacketView& packet) {
  const std::size_t bytes = whole_bytes(packet);
  DatagramRoute shown = route;
  set_port(shown.destination, wire::roce_v2_port);
  const std::uint32_t error =
      packet.icrc().value_or(0) ^ icrc_of(DatagramHeaders(route, bytes), packet);
  return icrc_of(DatagramHeaders(shown, bytes), packet) ^ error;
}

// A group is an IPv6 multicast address (ff00::/8), or an IPv4 one in mapped form.
bool is_multicast(const ibv_gid& gid) {
  if (gid.raw[0] == 0xFF) return true;
  const sockaddr_storage address = address_of(gid);
  return address.ss_family == AF_INET && gid.raw[12] >> 4 == 0xE;  // 224.0.0.0/4
}

// A hash may map two groups to the same IPv4 address; the receiver then delivers to the members of
// both.
// A group is a GID, while a device may have addresses of either family: each family needs an
// address for it, the same one at every sender and receiver.
sockaddr_storage multicast_address(const ibv_gid& group, int family) {
  const sockaddr_storage address = address_of(group);
  if (address.ss_family == family) return address;
  ibv_gid other{};
  if (family == AF_INET6) {  // RFC 4291 §2.7: transient, of site-local scope
    other.raw[0] = 0xFF;
    other.raw[1] = 0x15;
    std::memcpy(other.raw + 12, group.raw + 12, 4);
  } else {
    const std::uint32_t hash = crc32c(as_bytes(std::span(group.raw)));
    other.raw[10] = other.raw[11] = 0xFF;
    other.raw[12] = 239;
    other.raw[13] = static_cast<std::uint8_t>(192 | (hash >> 16 & 3));
    other.raw[14] = static_cast<std::uint8_t>(hash >> 8);
    other.raw[15] = static_cast<std::uint8_t>(hash);
  }
  return address_of(other);
}

}  // namespace weft::device
