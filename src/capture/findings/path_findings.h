// Reports that packets take another path than before, that the segments of a sender have another
// size, as after a change of the path MTU, and that a connection of InfiniBand has a smaller path
// MTU than an earlier one between the same hosts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/steady_value.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view path_change = "path-change";
inline constexpr std::string_view mtu_change = "mtu-change";
}  // namespace finding

class PathFindings final : public TrafficSink {
 public:
  static constexpr std::size_t max_frames = 16;
  // Pairs of hosts whose path MTU is remembered. Further ones are left out.
  static constexpr std::size_t max_host_pairs = 4'096;

  // Both must outlive this object.
  PathFindings(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  void on_path_change(const Origin& origin, const PathChange& change) override;
  void on_send(const Origin& origin, const SendPart& part) override { note(origin, part, 0); }
  void on_write(const Origin& origin, const WritePart& part) override { note(origin, part, 1); }
  void on_read_part(const Origin& origin, const ReadPart& part) override { note(origin, part, 2); }
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override { pairs_.erase(connection); }
  // Ends the trace: reports one finding for each kind of change of each side.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink);

 private:
  template <typename Change>
  struct Changes {
    std::uint64_t count = 0;
    Change first;
    std::vector<Stamp> stamps;

    void add(const Change& change, const Stamp& stamp) {
      if (count++ == 0) first = change;
      if (stamps.size() < max_frames) stamps.push_back(stamp);
    }
  };
  struct Sizes {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
  };
  struct Half {
    Changes<PathChange> paths;
    // Of segments that end no message, by kind: the headers of the kinds have different sizes.
    std::array<SteadyValue<std::uint64_t>, 3> sizes;
    Changes<Sizes> mtus;
  };
  using Hosts = std::pair<HostAddress, HostAddress>;  // the smaller address first
  // The latest connection of two hosts of which the path MTU is known.
  struct KnownMtu {
    std::uint32_t bytes = 0;
    Stamp first;
    std::uint32_t smallest_reported = 0;  // 0: none
  };
  struct Pair {
    bool iwarp = false;
    std::array<Half, 2> halves;
  };

  template <typename Part>
  void note(const Origin& origin, const Part& part, std::size_t kind) {
    // The last part has what is left.
    if (!part.last && !part.lost) note(origin, part.bytes.size() + part.missing_bytes, kind);
  }
  void note(const Origin& origin, std::uint64_t bytes, std::size_t kind);
  Pair& pair(ConnectionId connection);
  void report(const Connection& connection, Side side, const Half& half);
  void compare_mtu(const Connection& connection);

  const ConnectionTable& connections_;
  FindingSink* sink_;
  ConnectionMap<Pair> pairs_;
  std::map<Hosts, KnownMtu> mtus_;
};

}  // namespace weft::capture
