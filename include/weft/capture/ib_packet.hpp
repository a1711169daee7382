// One packet of the InfiniBand transport as the layers below found it: native, RoCE v1 or RoCE v2.
// They have taken off link layers, tunnels of VLAN tags and IP; they judge nothing from BTH on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/bytes.hpp"
#include "weft/capture/host_address.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

struct IbPacket {
  enum class Carrier : std::uint8_t {
    native,   // `network` is the LRH (8 bytes) and, where its next header says so, the GRH (40)
    roce_v1,  // Ethertype 0x8915: `network` is the GRH
    roce_v2,  // UDP port 4791: `network` is the IPv4 or IPv6 header, whole, and the UDP header (8)
  };

  Stamp stamp{};
  Carrier carrier = Carrier::roce_v2;
  HostAddress source{};       // IP address (roce_v2), GID (where there is a GRH), else LID
  HostAddress destination{};  // likewise
  Bytes network{};            // what stands before the BTH and counts for the ICRC
  // From the BTH to the end of the ICRC: padding of the link, VCRC and FCS are taken off. Shorter
  // than wire_bytes where the snap length cut the packet: then the end, the ICRC first, is missing.
  Bytes transport{};
  std::size_t wire_bytes = 0;  // of `transport` on the wire, by the lengths in LRH, GRH or UDP
  std::uint8_t ecn = 0;        // the two bits of the IP header or GRH: 3 is congestion experienced
  // Put together from IP fragments: `network` is the UDP header alone, the ICRC cannot be judged.
  bool from_fragments = false;

  [[nodiscard]] bool truncated() const { return transport.size() < wire_bytes; }
};

// Who takes them. Packets come in the order of the capture; spans are valid during the call only.
class InfinibandPackets {
 public:
  virtual ~InfinibandPackets() = default;
  virtual void on_packet(const IbPacket& packet) = 0;
  // The capture is at its end (or was asked for its results): say what is still open.
  virtual void finish() {}
};

}  // namespace weft::capture
