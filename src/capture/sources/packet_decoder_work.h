// The implementation of PacketDecoder; only for packet_decoder.cc and tunnels.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/result.h"
#include "capture/sources/copy_filter.h"
#include "capture/sources/ip_fragments.h"
#include "capture/sources/protocol_counts.h"
#include "weft/capture/host_address.hpp"
#include "weft/capture/packet_decoder.hpp"
#include "wire/error.h"
#include "wire/link.h"
#include "wire/tcp.h"
#include "wire/tunnel.h"
#include "wire/udp.h"

namespace weft::capture {

class PacketDecoder::Work {
 public:
  Work(TcpSegments& tcp, InfinibandPackets& infiniband) : tcp_(tcp), infiniband_(infiniband) {}

  void decode(const RawPacket& packet, const Stamp& stamp);
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::vector<Named> others() const { return others_.named(); }
  [[nodiscard]] std::vector<Named> tunnels() const { return tunnels_.named(); }
  [[nodiscard]] std::uint64_t dropped_fragments() const { return fragments_.dropped(); }

 private:
  // The captured bytes of a layer, and its length on the wire.
  struct Layer {
    Bytes bytes;
    std::size_t wire_bytes = 0;

    [[nodiscard]] Layer after(std::size_t header_bytes) const {
      return {bytes.subspan(header_bytes), wire_bytes - std::min(wire_bytes, header_bytes)};
    }
    // Removes what the link layer appended.
    void shorten(std::size_t length_bytes) {
      wire_bytes = length_bytes;
      if (bytes.size() > length_bytes) bytes = bytes.first(length_bytes);
    }
  };
  struct IpPacket {
    HostAddress source;
    HostAddress destination;
    std::uint8_t protocol = 0;
    std::uint8_t ecn = 0;
    std::uint8_t hop_limit = 0;
    std::uint16_t id = 0;              // of IPv4
    const std::byte* begin = nullptr;  // first byte of the IP header
    bool from_fragments = false;
  };

  void link(const RawPacket& packet, Result<wire::LinkHeader, wire::WireError> header);
  void erf(const RawPacket& packet);
  void network(wire::EtherType type, Layer layer);
  void ipv4(Layer layer);
  void ipv6(Layer layer);
  // Skips the extension headers. Returns false if the packet needs no further decoding.
  bool ipv6_extensions(IpPacket& ip, Layer& layer, std::uint8_t next);
  bool ipv6_fragment(const IpPacket& ip, const Layer& layer);
  void fragment(const IpPacket& ip, IpFragment piece, const Layer& layer);
  void transport(const IpPacket& ip, const Layer& layer);
  void tcp(const IpPacket& ip, const Layer& layer);
  [[nodiscard]] bool is_copy(const IpPacket& ip, const wire::TcpHeader& header,
                             const Layer& payload);
  void udp(const IpPacket& ip, const Layer& layer);
  void roce_v1(Layer layer);
  void native(Layer layer);
  void problem(wire::WireError error);
  void other(ProtocolCounts::Layer layer, std::uint16_t number);

  // Tunnels: tunnels.cc.
  using TunnelResult = Result<wire::TunnelHeader, wire::WireError>;
  // Decodes a packet in a tunnel. Returns false if the protocol is none.
  bool ip_tunnel(const IpPacket& ip, const Layer& layer);
  bool udp_tunnel(const wire::UdpHeader& header, const Layer& payload);
  bool ethernet_tunnel(std::uint16_t type, const Layer& layer);
  bool infiniband_tunnel(Bytes network, const Layer& layer);
  // Decodes what follows the header of a tunnel.
  void inside(const TunnelResult& header, const Layer& layer);
  void ethernet(Layer layer);
  void raw_ip(const Layer& layer);
  bool enter(ProtocolCounts::Layer layer, std::uint16_t number);

  TcpSegments& tcp_;
  InfinibandPackets& infiniband_;
  Stamp stamp_;
  IpFragments fragments_;
  CopyFilter copies_;
  CopyRates copy_rates_;
  ProtocolCounts others_;
  ProtocolCounts tunnels_;
  unsigned depth_ = 0;        // tunnels around what is decoded now
  bool reassembled_ = false;  // what is decoded now was in fragments
  Counts counts_;
};

}  // namespace weft::capture
