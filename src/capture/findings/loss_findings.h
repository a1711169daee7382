// Reports packets that were lost before the capture, which has their retransmissions only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/finding.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view lost_before = "lost-before-capture";
}  // namespace finding

class LossFindings final : public TrafficSink {
 public:
  static constexpr std::size_t max_frames = 16;

  // Both must outlive this object.
  LossFindings(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  void on_late(const Origin& origin, std::int64_t delay_ns) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override { pairs_.erase(connection); }
  // Ends the trace: reports one finding for each side.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink);

 private:
  struct Losses {
    std::uint64_t count = 0;
    std::int64_t total_ns = 0;
    std::int64_t longest_ns = 0;
    std::vector<Stamp> stamps;  // of the retransmissions
  };

  const ConnectionTable& connections_;
  FindingSink* sink_;
  ConnectionMap<std::array<Losses, 2>> pairs_;
};

}  // namespace weft::capture
