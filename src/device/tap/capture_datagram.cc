#include "device/tap/capture_datagram.h"

#include <algorithm>
#include <array>

#include "base/kernel_clock.h"
#include "device/addresses.h"
#include "device/tap/capture_frame.h"
#include "device/tap/capture_writer.h"
#include "wire/ethernet.h"
#include "wire/icrc.h"

namespace weft::device {
namespace {

// IPv6 has the longer header, so the room fits both versions.
constexpr std::size_t max_head_bytes =
    wire::PcapngPacket::head_bytes + wire::EthernetHeader::header_bytes +
    wire::Ipv6Header::header_bytes + wire::UdpHeader::header_bytes;

// The MAC address of an endpoint; groups have one by RFC 1112 §6.4 and RFC 2464 §7.
wire::MacAddress mac_of(const sockaddr_storage& address) {
  const CaptureEndpoint endpoint = CaptureEndpoint::of(address);
  const auto& bytes = endpoint.address;
  if (!is_multicast(gid_of(address))) return endpoint.mac();
  if (endpoint.is_ipv4()) {
    return {std::byte{0x01}, std::byte{0}, std::byte{0x5E}, bytes[13] & std::byte{0x7F},
            bytes[14],       bytes[15]};
  }
  return {std::byte{0x33}, std::byte{0x33}, bytes[12], bytes[13], bytes[14], bytes[15]};
}

// The kernel computes the UDP checksum on the way out, so the capture computes it here.
void store_checksum(const DatagramRoute& route, MutableBytes udp, Bytes packet, Bytes icrc) {
  const CaptureEndpoint from = CaptureEndpoint::of(route.source);
  const CaptureEndpoint to = CaptureEndpoint::of(route.destination);
  const std::size_t bytes = udp.size() + packet.size() + icrc.size();
  auto checksum = from.is_ipv4()
                      ? wire::pseudo_header(from.ipv4(), to.ipv4(), wire::IpProtocol::udp, bytes)
                      : wire::pseudo_header(from.address, to.address, wire::IpProtocol::udp, bytes);
  for (const Bytes part : {Bytes(udp), packet, icrc}) checksum.update(part);
  const std::uint16_t value = checksum.value();
  wire::store_udp_checksum(udp, value);
}

}  // namespace

// Builds the packet block on the stack around the given bytes and writes it with one call.
void DatagramTap::write(const DatagramRoute& route, Bytes packet, std::uint32_t icrc,
                        wire::PcapngDirection direction) {
  const auto file = capture_->file();
  if (!file) return;
  CaptureWriter& writer = file->writer();
  if (!writer.writable()) return writer.count_lost(1);
  DatagramRoute shown = route;
  // Readers recognize RoCE v2 by its port, 4791, whichever port the device uses.
  set_port(shown.destination, wire::roce_v2_port);
  std::array<std::byte, wire::IbPacketView::icrc_bytes> icrc_bytes;
  wire::store_icrc(icrc_bytes.data(), icrc);
  const DatagramHeaders network(shown, packet.size() + icrc_bytes.size());

  std::array<std::byte, max_head_bytes> room;
  const std::size_t link_at = wire::PcapngPacket::head_bytes;
  const std::size_t network_at = link_at + wire::EthernetHeader::header_bytes;
  const MutableBytes head = MutableBytes(room).first(network_at + network.bytes().size());
  const bool ipv4 = shown.destination.ss_family == AF_INET;
  const wire::EthernetHeader link{.destination = mac_of(shown.destination),
                                  .source = mac_of(shown.source),
                                  .type = ipv4 ? wire::EtherType::ipv4 : wire::EtherType::ipv6};
  link.emit(head.subspan(link_at));
  std::copy(network.bytes().begin(), network.bytes().end(), &head[network_at]);
  store_checksum(shown, head.last(wire::UdpHeader::header_bytes), packet, icrc_bytes);

  wire::PcapngPacket block;
  block.timestamp = kernel_clock_ns(CLOCK_REALTIME);
  block.captured_bytes =
      static_cast<std::uint32_t>(head.size() - link_at + packet.size() + icrc_bytes.size());
  block.original_bytes = block.captured_bytes;
  block.direction = direction;
  block.emit_head(head);
  std::array<std::byte, wire::PcapngPacket::max_tail_bytes> tail;
  block.emit_tail(tail);
  // iovec has no const form; the packet is only read.
  std::array<iovec, 4> vectors{{{head.data(), head.size()},
                                {const_cast<std::byte*>(packet.data()), packet.size()},
                                {icrc_bytes.data(), icrc_bytes.size()},
                                {tail.data(), block.tail_bytes()}}};
  writer.write(vectors, 1);
}

}  // namespace weft::device
