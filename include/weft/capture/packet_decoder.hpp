// From a captured packet to a TCP segment or a packet of the InfiniBand transport: link layers,
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
  // What became of the packets that were not handed on.
  struct Counts {
    std::uint64_t unknown_link = 0;  // a link type that is not understood
    std::uint64_t other = 0;         // neither TCP nor InfiniBand: ARP, other UDP, …
    std::uint64_t cut_short = 0;     // captured with less than their headers
    std::uint64_t malformed = 0;     // headers that contradict themselves
    std::uint64_t fragments = 0;     // of IP; not counted elsewhere
  };

  // Both outlive the decoder.
  PacketDecoder(TcpSegments& tcp, InfinibandPackets& infiniband);
  PacketDecoder(const PacketDecoder&) = delete;
  PacketDecoder& operator=(const PacketDecoder&) = delete;
  ~PacketDecoder();

  // Calls tcp or infiniband at most once, during the call, with spans into the packet; a packet
  // that completes an IP datagram gives out the whole of it. Never throws because of its content.
  void decode(const RawPacket& packet, const Stamp& stamp);

  [[nodiscard]] const Counts& counts() const;
  // Fragments given up: their datagram did not become whole in time, or too many waited.
  [[nodiscard]] std::uint64_t dropped_fragments() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
