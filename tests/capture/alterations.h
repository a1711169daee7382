// What a test has done to a capture: which packets the altered capture lacks, has twice, has late,
// or has only in part. A test compares with it what an analysis says about the altered capture.
//
// A packet of the altered capture knows its number in the original (MadePacket::number), so nothing
// is guessed from contents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "capture/made_capture.h"
#include "weft/capture/connection.hpp"

namespace weft::capture::test {

// Gives each packet its number, from 0.
[[nodiscard]] MadeCapture numbered(MadeCapture capture);

// The sender of a packet of a capture, and its place in the TCP stream.
struct SentPacket {
  bool tcp = false;
  bool infiniband = false;
  HostAddress source{};
  HostAddress destination{};
  std::uint32_t source_number = 0;       // TCP port; InfiniBand's packets do not name it
  std::uint32_t destination_number = 0;  // TCP port, or queue pair number
  std::size_t payload_bytes = 0;
  bool syn = false;
  bool fin = false;
  bool rst = false;

  [[nodiscard]] bool is_management() const { return infiniband && destination_number == 1; }
  // Returns whether this side of the connection has sent it.
  [[nodiscard]] bool is_of(const Connection& connection, Side side) const;
};

[[nodiscard]] std::vector<SentPacket> sent_packets(const MadeCapture& capture);

// Numbers of packets in the original: from the first one up to and including the last one.
struct PacketRange {
  std::size_t first = 0;
  std::size_t last = std::numeric_limits<std::size_t>::max();
};

class Alterations {
 public:
  // `original` must be numbered(). All three must outlive the object.
  Alterations(const MadeCapture& original, const std::vector<SentPacket>& sent,
              const MadeCapture& altered);

  // Return whether the altered capture lacks, or has only in part, a packet of the side.
  [[nodiscard]] bool lacks(const Connection& connection, Side side, PacketRange range = {}) const;
  [[nodiscard]] bool lacks(const Connection& connection, PacketRange range = {}) const {
    return lacks(connection, Side::a, range) || lacks(connection, Side::b, range);
  }
  [[nodiscard]] bool lacks_nothing() const {
    return std::find(whole_.begin(), whole_.end(), false) == whole_.end();
  }
  [[nodiscard]] bool lacks_packet(std::size_t number) const {
    return places_[number].empty() || !whole_[number];
  }
  // Returns whether it has a packet of the side twice or more.
  [[nodiscard]] bool repeats(const Connection& connection, Side side) const;
  // Returns whether it has no packet of the side in the frames of the connection, without those of
  // the connection manager.
  [[nodiscard]] bool silences(const Connection& connection, Side side) const;
  // Returns whether it lacks a FIN of the side, or of InfiniBand a message of the connection
  // manager.
  [[nodiscard]] bool lacks_end(const Connection& connection, Side side) const;
  // Returns whether all packets of the connection in the altered capture from frame `first` to
  // frame `last` were sent again, and are there once more before.
  [[nodiscard]] bool only_repeats(const Connection& connection) const;
  // Returns the number in the original of a frame of the altered capture.
  [[nodiscard]] std::size_t number_of(std::uint64_t frame) const {
    return altered_[static_cast<std::size_t>(frame) - 1].number;
  }
  [[nodiscard]] const std::vector<SentPacket>& sent() const { return sent_; }

 private:
  const std::vector<SentPacket>& sent_;
  const MadeCapture& altered_;
  std::vector<std::vector<std::size_t>> places_;  // in the altered capture, by number
  std::vector<bool> whole_;                       // by number
};

}  // namespace weft::capture::test
