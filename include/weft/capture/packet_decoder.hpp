// Decodes a captured packet to a TCP segment or a packet of the InfiniBand transport: link layers,
// VLAN tags, IPv4 with fragments, IPv6 with extension headers, UDP.
#pragma once

#include <cstdint>
#include <memory>

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

  [[nodiscard]] const Counts& counts() const;
  // Dropped fragments: their datagram was not complete in time, or too many were waiting.
  [[nodiscard]] std::uint64_t dropped_fragments() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
