// Builds pcapng packet blocks with synthesised headers around the payload of TCP connections.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/pcapng.h"
#include "wire/tcp.h"

namespace weft::device {

// One end of a connection as shown in the headers.
struct CaptureEndpoint {
  wire::Ipv6Address address{};  // IPv4 as ::ffff:a.b.c.d
  std::uint16_t port = 0;

  // Families other than IPv4 and IPv6 are shown as 0.0.0.0, port 0.
  [[nodiscard]] static CaptureEndpoint of(const sockaddr_storage& address);
  [[nodiscard]] bool is_ipv4() const;
  [[nodiscard]] wire::Ipv4Address ipv4() const;
  // A locally administered MAC address: 02:00 and the last four bytes of the IP address.
  [[nodiscard]] wire::MacAddress mac() const;
};

// The values of a packet's link and network headers.
struct CaptureRoute {
  const CaptureEndpoint& source;
  const CaptureEndpoint& destination;
  wire::PcapngDirection direction;
  std::uint16_t ip_id;
};

// The packet blocks of one write. The payload is referred to, not copied, and must live until the
// write.
class CaptureBatch {
 public:
  // Removes all blocks and reserves room for `packets`; no more may be added. All get the present
  // time.
  void restart(std::size_t packets);

  // A packet is built by begin(), payload() for each piece, and finish(), which fills in the ports
  // and the checksum of `tcp`.
  void begin();
  void payload(Bytes piece);
  void finish(const CaptureRoute& route, wire::TcpHeader tcp);

  [[nodiscard]] std::size_t packets() const { return frames_.size(); }
  [[nodiscard]] std::span<iovec> vectors() { return vectors_; }

 private:
  static constexpr std::size_t max_head_bytes =
      wire::PcapngPacket::head_bytes + wire::EthernetHeader::header_bytes +
      wire::Ipv6Header::header_bytes + wire::TcpHeader::min_header_bytes + 40;

  // The bytes before and after the payload.
  struct Frame {
    std::array<std::byte, max_head_bytes> head;
    std::array<std::byte, wire::PcapngPacket::max_tail_bytes> tail;
  };

  [[nodiscard]] std::uint16_t tcp_checksum(const CaptureRoute& route, Bytes tcp_header) const;

  std::vector<Frame> frames_;  // never grows after restart(), because vectors_ points into it
  std::vector<iovec> vectors_;
  std::size_t first_vector_ = 0;  // index of the head of the packet being built
  std::size_t payload_bytes_ = 0;
  std::uint64_t now_ns_ = 0;
};

}  // namespace weft::device
