// Decodes a captured packet to a TCP segment or a packet of the InfiniBand transport: link layers,
// VLAN tags, MPLS, PPPoE, IPv4 with fragments, IPv6 with extension headers, UDP, and tunnels in
// each other (GRE, ERSPAN, IP in IP, VXLAN, Geneve, TZSP, EtherIP, IPoIB).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/capture/ib_packet.hpp"
#include "weft/capture/packet_source.hpp"
#include "weft/capture/tcp_segment.hpp"
#include "weft/export.hpp"

namespace weft::capture {

class WEFT_API PacketDecoder {
 public:
  // Packets that were not passed on, by reason.
  struct Counts {
    std::uint64_t unknown_link = 0;  // unsupported link type
    std::uint64_t other = 0;         // neither TCP nor InfiniBand: ARP, other UDP, …
    std::uint64_t cut_short = 0;     // captured bytes end within the headers
    std::uint64_t malformed = 0;     // inconsistent headers
    std::uint64_t fragments = 0;     // IP fragments; not counted elsewhere
    std::uint64_t copies = 0;  // TCP segments that the capture has twice; only the first counts
  };
  // A number of packets with a name: of a tunnel, or of a protocol that is not decoded.
  struct Named {
    std::string name;
    std::uint64_t packets = 0;
  };

  // Both must outlive the decoder.
  PacketDecoder(TcpSegments& tcp, InfinibandPackets& infiniband);
  PacketDecoder(const PacketDecoder&) = delete;
  PacketDecoder& operator=(const PacketDecoder&) = delete;
  ~PacketDecoder();

  // Calls tcp or infiniband at most once, during the call, with spans into the packet; a packet
  // that completes an IP datagram passes on the whole datagram. The content of a packet never makes
  // it throw.
  void decode(const RawPacket& packet, const Stamp& stamp);

  // Returns the counters. The reference is valid as long as the decoder, and decode() changes them.
  [[nodiscard]] const Counts& counts() const;
  // Returns the protocols of Counts::other, the most frequent first. Protocols after the first 64
  // are counted together, as "other protocols", and UDP to ports of no known service as "other
  // UDP".
  [[nodiscard]] std::vector<Named> others() const;
  // Returns the kinds of tunnels, the most frequent first. A packet in two tunnels counts for both.
  [[nodiscard]] std::vector<Named> tunnels() const;
  // Dropped fragments: their datagram was not complete in time, or too many were waiting.
  [[nodiscard]] std::uint64_t dropped_fragments() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
