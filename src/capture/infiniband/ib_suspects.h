// Recognises hosts that use UDP port 4791 for something other than RoCE: packets without a correct
// ICRC are RoCE only if their headers are possible, and if most of those before them were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "weft/capture/ib_packet.hpp"
#include "wire/ib_transport.h"

namespace weft::capture {

class IbSuspects {
 public:
  // Returns whether the headers of a packet are possible (§9.2): version 0, a partition key, which
  // is never 0 (§10.9.2), and, if the whole packet was captured, a known opcode.
  [[nodiscard]] static bool is_plausible(const wire::IbPacketView& view) {
    constexpr std::uint16_t key_mask = 0x7FFF;
    const bool known =
        view.layout().known || view.bth().opcode == wire::congestion_notification || !view.icrc();
    return view.bth().version == 0 && (view.bth().partition_key & key_mask) != 0 && known;
  }
  // Decides about a packet without a correct ICRC, and counts it.
  [[nodiscard]] bool may_be_roce(const IbPacket& packet, bool plausible) {
    if (packet.carrier != IbPacket::Carrier::roce_v2) return true;
    const std::size_t pair = packet.source.hash() * 31 + packet.destination.hash();
    if (pairs_.size() >= max_pairs && !pairs_.contains(pair)) return plausible;
    Counts& counts = pairs_[pair];
    ++(plausible ? counts.possible : counts.impossible);
    const bool something_else =
        counts.impossible >= few_packets && counts.impossible > counts.possible / few_packets;
    return plausible && !something_else;
  }

 private:
  static constexpr std::uint64_t few_packets = 3;
  static constexpr std::size_t max_pairs = 4096;

  struct Counts {
    std::uint64_t possible = 0;
    std::uint64_t impossible = 0;
  };
  std::unordered_map<std::size_t, Counts> pairs_;  // by the hash of both addresses
};

}  // namespace weft::capture
