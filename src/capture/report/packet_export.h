// Writes the packets of what was selected to a pcapng file. What is selected is known only when an
// exchange has ended, so the input is read twice: the first time this object collects which frames
// of which connections are wanted, the second time it writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/report/frame_ranges.h"
#include "capture/report/report.h"
#include "weft/capture/packet_source.hpp"

namespace weft::capture {

class PacketExport {
 public:
  // Further connections are left out.
  static constexpr std::size_t max_connections = 65'536;

  // The packets of one direction of a connection.
  struct Direction {
    HostAddress source;
    HostAddress destination;
    std::uint32_t source_number = 0;       // TCP port; 0 on InfiniBand, whose packets lack it
    std::uint32_t destination_number = 0;  // TCP port or queue pair
    bool tcp = false;
    bool operator==(const Direction&) const = default;
  };

  // Both must outlive this object.
  PacketExport(const Analysis& analysis, const Selection& selection)
      : analysis_(analysis), selection_(selection) {}

  // Adds the frames of the other parts of something selected: of an exchange, each packet of its
  // connection from the first to the last one of it; of a finding, its frames.
  void add(const Operation& operation);
  void add(const Rpc& rpc);
  void add(const StorageCommand& command);
  void add(const Finding& finding);
  // Adds a connection that is forgotten, or is there at the end: all of its frames if it is
  // selected itself.
  void add(const Connection& connection);

  // Reads the input again, from its beginning, in the same order, up to the frame with which the
  // analysis ended. Stops before the end if `stop` returns true. Each packet has its original time
  // and link type, and its original frame number as a comment. Returns the number of packets.
  std::uint64_t write(PacketSource& source, const Report::Write& out,
                      const std::function<bool()>& stop);
  // Connections that were left out, because there are too many.
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

 private:
  struct DirectionHash {
    std::size_t operator()(const Direction& direction) const;
  };
  // What is wanted of one connection.
  struct Flow {
    FrameRanges ranges;
    std::uint64_t beginning = 0;   // the frame with its beginning
    std::uint32_t first_left = 0;  // packets at the beginning that are wanted anyway
    bool whole = false;
  };
  class Writer;
  class Reader;

  // Returns nullptr if there are too many.
  Flow* flow(ConnectionId connection);
  void include(ConnectionId connection, std::uint64_t first, std::uint64_t last);
  void know(const Direction& direction, ConnectionId connection);
  [[nodiscard]] bool wants(Flow& flow, const Stamp& stamp) const;

  const Analysis& analysis_;
  const Selection& selection_;
  std::unordered_map<ConnectionId, Flow> flows_;
  // Several connections may have used the same ports, one after the other.
  std::unordered_map<Direction, std::vector<ConnectionId>, DirectionHash> directions_;
  FrameRanges management_;  // while a selected connection was open: its connection manager's
  std::uint64_t left_out_ = 0;
};

}  // namespace weft::capture
