// How good a capture is: what it lacks, has twice, or has in the wrong order. Verdicts about the
// traffic are worth as much as the capture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/capture/analysis.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// Packets on different paths come within this time. A retransmission of a packet that was lost
// before the capture needs longer than that, unless the network is very fast.
inline constexpr std::int64_t longest_detour_ns = 3'000'000;

struct CaptureQuality {
  std::uint64_t frames = 0;
  std::uint64_t cut_frames = 0;       // by the snap length
  std::uint64_t cut_bytes = 0;        // not decodable because the snap length cut their headers
  std::uint64_t missing_bytes = 0;    // of TCP: acknowledged, but not in the capture
  std::uint64_t missing_packets = 0;  // of InfiniBand: the same
  std::uint64_t resent_packets = 0;   // lost before the capture, which has only the retransmission
  std::uint64_t late_packets = 0;     // captured after later ones of their side
  std::uint64_t copies = 0;           // captured twice, by a mirror or on two interfaces
  std::uint64_t not_roce = 0;         // UDP to port 4791 that is something else
  std::uint64_t connections = 0;
  std::uint64_t one_direction = 0;  // connections of which only one side's packets were captured
  std::uint64_t begun_before = 0;   // of iWARP: open before the capture began
  bool stopped = false;             // reading was stopped before the end
  std::vector<ClockDifference> clocks;  // that were corrected
};

// Returns sentences about everything that is not perfect; none if there is nothing.
[[nodiscard]] WEFT_API std::vector<std::string> describe(const CaptureQuality& quality);

class WEFT_API QualityMeter final : public TrafficSink {
 public:
  // `analysis` must outlive this object, which must be one of its sinks.
  explicit QualityMeter(const Analysis& analysis) : analysis_(analysis) {}

  // Returns what is known up to now.
  [[nodiscard]] CaptureQuality quality() const;

  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_late(const Origin& origin, std::int64_t delay_ns) override;
  void on_forget(ConnectionId connection) override;

 private:
  const Analysis& analysis_;
  CaptureQuality sums_;
};

}  // namespace weft::capture
