// Unreliable datagrams as RoCE v2 packets: the headers and the ICRC around a message (InfiniBand
// Architecture Specification, volume 1, §9.8.3; Annex A17). Works on bytes only, without sockets
// and queues.
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

// Source and destination with their ports, and the header fields that routers use.
struct DatagramRoute {
  sockaddr_storage source{};
  sockaddr_storage destination{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

// The IP and UDP headers of a packet as the sending kernel writes them: don't-fragment is set and
// the IPv4 identification is 0. The ICRC covers them, so both ends must construct the same bytes.
class DatagramHeaders {
 public:
  DatagramHeaders(const DatagramRoute& route, std::size_t packet_bytes);

  [[nodiscard]] Bytes bytes() const { return Bytes(bytes_).first(ip_bytes_ + udp_bytes); }
  // Writes the 40 bytes in front of a received message: an IPv6 header, or 20 zero bytes and an
  // IPv4 header, as RoCE v2 adapters place it.
  void emit_grh(MutableBytes out) const;

 private:
  static constexpr std::size_t udp_bytes = wire::UdpHeader::header_bytes;

  std::array<std::byte, wire::Ipv6Header::header_bytes + udp_bytes> bytes_{};
  std::size_t ip_bytes_ = 0;
};

inline constexpr std::uint32_t grh_bytes = 40;
// The size of the largest packet for a message of `mtu_bytes`: headers, immediate data, pad and
// ICRC.
[[nodiscard]] constexpr std::size_t datagram_packet_bytes(std::size_t mtu_bytes) {
  return mtu_bytes + wire::Bth::header_bytes + wire::Deth::header_bytes + 4 + 3 +
         wire::IbPacketView::icrc_bytes;
}

// Builds a packet from the BTH to the ICRC, and fills in the pad count of `headers`. Empty where
// the message cannot be read.
[[nodiscard]] std::vector<std::byte> make_datagram(const DatagramRoute& route,
                                                   wire::IbHeaders headers,
                                                   std::span<const iovec> message);
[[nodiscard]] bool icrc_is_right(const DatagramRoute& route, const wire::IbPacketView& packet);
// Returns the ICRC that the same packet would have at RoCE's own UDP port; it stays wrong if it is
// wrong.
[[nodiscard]] std::uint32_t icrc_at_roce_port(const DatagramRoute& route,
                                              const wire::IbPacketView& packet);

// --- Multicast -----------------------------------------------------------------------------------

// The UDP port for groups, shared by all processes of a host. It follows the ports of the slots.
inline constexpr std::uint16_t multicast_port = 28672 + 1024;
// The queue pair number of every group member (§9.6.1.4 of the same specification).
inline constexpr std::uint32_t multicast_queue_pair = 0xFFFFFF;

// True for an IPv6 multicast address and for a mapped IPv4 one.
[[nodiscard]] bool is_multicast(const ibv_gid& gid);
// The address of `family`, without a port, to send packets for a group to: the group's own address;
// or, if it is of the other family, one derived from it (IPv4: RFC 2365, organization-local scope;
// IPv6: site-local scope).
[[nodiscard]] sockaddr_storage multicast_address(const ibv_gid& group, int family);

}  // namespace weft::device
