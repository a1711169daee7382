// Unreliable datagrams as RoCE v2 packets: what stands around a message (InfiniBand Architecture
// Specification, volume 1, §9.8.3; Annex A17). Bytes only: no socket, no queue.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "wire/ib_transport.h"
#include "wire/ip.h"
#include "wire/udp.h"

namespace weft::device {

// From where to where, ports included, and what routers are told.
struct DatagramRoute {
  sockaddr_storage source{};
  sockaddr_storage destination{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

// The IP and UDP headers of a packet, as the sending system writes them: nothing may fragment it,
// and it has no identification. The ICRC covers them, so both ends must agree on them.
class DatagramHeaders {
 public:
  DatagramHeaders(const DatagramRoute& route, std::size_t packet_bytes);

  [[nodiscard]] Bytes bytes() const { return Bytes(bytes_).first(ip_bytes_ + udp_bytes); }
  // What a receive gets in front of the message: an IPv6 header, or an IPv4 header behind as many
  // zeros as an IPv6 header is longer, as RoCE v2 adapters do.
  void emit_grh(MutableBytes out) const;

 private:
  static constexpr std::size_t udp_bytes = wire::UdpHeader::header_bytes;

  std::array<std::byte, wire::Ipv6Header::header_bytes + udp_bytes> bytes_{};
  std::size_t ip_bytes_ = 0;
};

inline constexpr std::uint32_t grh_bytes = 40;
// The largest packet for a message of `mtu_bytes`: headers, pad and ICRC.
[[nodiscard]] constexpr std::size_t datagram_packet_bytes(std::size_t mtu_bytes) {
  return mtu_bytes + wire::Bth::header_bytes + wire::Deth::header_bytes + 4 + 3 +
         wire::IbPacketView::icrc_bytes;
}

// From the BTH to the ICRC; the pad count of `headers` is filled in here.
[[nodiscard]] std::vector<std::byte> make_datagram(const DatagramRoute& route,
                                                   wire::IbHeaders headers,
                                                   std::span<const iovec> message);
[[nodiscard]] bool icrc_is_right(const DatagramRoute& route, const wire::IbPacketView& packet);
// The same packet with the ICRC that it would have at RoCE's own port, wrong where it is wrong.
[[nodiscard]] std::uint32_t icrc_at_roce_port(const DatagramRoute& route,
                                              const wire::IbPacketView& packet);

// --- Multicast -----------------------------------------------------------------------------------

// All processes of a host share this port; it comes right behind those of the slots.
inline constexpr std::uint16_t multicast_port = 28672 + 1024;
// Every member of a group has this number (§9.6.1.4 of the same).
inline constexpr std::uint32_t multicast_queue_pair = 0xFFFFFF;

// Either form: an IPv6 multicast address, or an IPv4 one in IPv6's clothes.
[[nodiscard]] bool is_multicast(const ibv_gid& gid);
// Where packets for a group go, without a port: the address itself, or, where the family has no
// such address, one of IPv4's that stands for it (RFC 2365, organization-local).
[[nodiscard]] sockaddr_storage multicast_address(const ibv_gid& group, int family);

}  // namespace weft::device
