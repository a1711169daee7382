// Notices when the packets of one direction of a connection begin to take another path.
#pragma once

#include <cstdint>

#include "weft/capture/steady_value.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

// What shows the path of a packet; 0 where the packet does not have it.
struct PacketPath {
  std::uint8_t hop_limit = 0;     // hop limit, or time to live
  std::uint16_t source_port = 0;  // of UDP
};

class PathWatch {
 public:
  // Calls `changed` with each change that this packet of the direction shows.
  template <typename Changed>
  void see(const PacketPath& path, const Changed& changed) {
    if (path.hop_limit != 0) {
      if (const auto before = hop_limit_.see(path.hop_limit)) {
        changed(PathChange{PathChange::Kind::hop_limit, *before, path.hop_limit});
      }
    }
    if (path.source_port != 0) {
      if (const auto before = source_port_.see(path.source_port)) {
        changed(PathChange{PathChange::Kind::source_port, *before, path.source_port});
      }
    }
  }

 private:
  SteadyValue<std::uint8_t> hop_limit_;
  SteadyValue<std::uint16_t> source_port_;
};

}  // namespace weft::capture
