// One packet of the InfiniBand transport, as native InfiniBand, RoCE v1 or RoCE v2 carried it. The
// layers below have removed link headers, VLAN tags and IP; they check nothing from the BTH on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/bytes.hpp"
#include "weft/capture/host_address.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

struct IbPacket {
  enum class Carrier : std::uint8_t {
    native,   // `network` is the LRH (8 bytes), followed by the GRH (40) if the LRH announces it
    roce_v1,  // Ethertype 0x8915: `network` is the GRH
    roce_v2,  // UDP port 4791: `network` is the whole IPv4 or IPv6 header and the UDP header (8)
  };

  Stamp stamp{};
  Carrier carrier = Carrier::roce_v2;
  HostAddress source{};       // IP address (roce_v2), GID (if there is a GRH), otherwise LID
  HostAddress destination{};  // same kinds as `source`
  Bytes network{};            // the headers before the BTH that the ICRC covers
  // The bytes from the BTH to the end of the ICRC, without link padding, VCRC and FCS. They are
  // fewer than wire_bytes if the snap length cut the packet: then its end, beginning with the ICRC,
  // is missing.
  Bytes transport{};
  // Size of `transport` on the wire, from the lengths in LRH, GRH or UDP.
  std::size_t wire_bytes = 0;
  std::uint8_t ecn = 0;  // the two ECN bits of the IP header or GRH: 3 means congestion experienced
  std::uint8_t hop_limit = 0;     // of IP (roce_v2), otherwise 0
  std::uint16_t source_port = 0;  // of UDP (roce_v2), otherwise 0
  // True if IP fragments were reassembled: `network` is the UDP header alone, and the ICRC cannot
  // be checked.
  bool from_fragments = false;

  // Returns whether the snap length cut the packet.
  [[nodiscard]] bool truncated() const { return transport.size() < wire_bytes; }
};

// Receives packets, in the order of the capture. Spans are valid during the call only.
class InfinibandPackets {
 public:
  virtual ~InfinibandPackets() = default;
  // Called once for each packet. `packet` is valid during the call only.
  virtual void on_packet(const IbPacket& packet) = 0;
  // Called at the end of the capture, or when its results are requested: report what is still open.
  virtual void finish() {}
};

}  // namespace weft::capture
