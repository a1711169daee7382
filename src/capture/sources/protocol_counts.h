// Counts packets by protocol, with the names of those that are frequent in networks.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "weft/capture/packet_decoder.hpp"

namespace weft::capture {

class ProtocolCounts {
 public:
  // Where the number of the protocol is from.
  enum class Layer : std::uint8_t {
    ethernet,    // Ethertype
    llc,         // destination service access point of IEEE 802.2
    ip,          // protocol number of IP
    udp,         // destination port
    tunnel,      // wire::TunnelHeader::Kind
    loopback,    // address family
    infiniband,  // raw packets
  };

  void add(Layer layer, std::uint16_t number);
  // The most frequent first.
  [[nodiscard]] std::vector<PacketDecoder::Named> named() const;

 private:
  // Protocols that are counted apart; packets of more are counted together.
  static constexpr std::size_t max_protocols = 64;

  std::map<std::pair<Layer, std::uint16_t>, std::uint64_t> counts_;
  std::uint64_t other_udp_ = 0;
  std::uint64_t rest_ = 0;
};

}  // namespace weft::capture
