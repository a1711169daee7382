// Measures how far the clocks of two captures are apart: of the same packets at two places, or of
// one direction at each of two ports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "weft/capture/packet_decoder.hpp"
#include "weft/capture/packet_source.hpp"

namespace weft::capture {

// The packets at the beginning of one capture, as far as they show its clock.
class ClockTrack final : private TcpSegments, private InfinibandPackets {
 public:
  ClockTrack() : decoder_(*this, *this) {}

  // Reads at most `packets` packets.
  void read(PacketSource& source, std::size_t packets);

  struct Difference {
    std::int64_t offset_ns = 0;  // what the clock of the other capture is ahead
    std::size_t samples = 0;
  };
  // Compares with the clock of `other`. Returns nothing if no packets of the captures belong
  // together, or if the difference is not larger than the time that packets need.
  [[nodiscard]] std::optional<Difference> compare(const ClockTrack& other) const;

 private:
  // The time of the packet with a key. A key that several packets have is useless.
  struct Seen {
    std::int64_t time_ns = 0;
    bool forward = false;  // from the smaller address to the larger one
    bool unique = true;
  };
  using Table = std::unordered_map<std::uint64_t, Seen>;

  void on_segment(const TcpSegment& segment) override;
  void on_packet(const IbPacket& packet) override;
  void finish() override {}
  static void note(Table& table, std::uint64_t key, const Stamp& stamp, bool forward);

  PacketDecoder decoder_;
  Table packets_;   // by their content
  Table requests_;  // by the number that acknowledges them
  Table answers_;   // by the number that they acknowledge
};

}  // namespace weft::capture
