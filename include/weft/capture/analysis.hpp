// A whole analysis: packets go in, traffic and operations come out. Needs no file and no libpcap;
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/capture/connection.hpp"
#include "weft/capture/limits.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/operation_tracker.hpp"
#include "weft/capture/packet_decoder.hpp"
#include "weft/capture/packet_source.hpp"
#include "weft/capture/tcp_flows.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

class WEFT_API Analysis {
 public:
  struct Limits {
    TcpFlows::Limits tcp;
    InfinibandLimits infiniband;
    std::size_t search_bytes = 64 * 1024 * 1024;  // of streams that may turn out to be MPA
    OperationTracker::Limits operations;
    // Known at a time. Where there are more, an eighth is forgotten (TrafficSink::on_close): those
    // that are over, or else those that have been silent for longest.
    std::size_t connections = 16'384;
  };
  struct Totals {
    std::uint64_t frames = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t captured_bytes = 0;
    std::int64_t first_ns = 0;
    std::int64_t last_ns = 0;
    std::uint64_t truncated_frames = 0;  // by the snap length
  };

  Analysis() : Analysis(Limits{}) {}
  explicit Analysis(const Limits& limits);
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;
  ~Analysis();

  // To be added before the first packet; they outlive the analysis. Each event goes to all of them,
  // in the order in which they were added.
  void add_sink(TrafficSink& sink);
  void add_operations(OperationSink& sink);

  // Frames are numbered in the order in which they come, from 1.
  void add(const RawPacket& packet);
  // No more packets come: gives out what is still open. To be called once, before the finish() of
  // sinks that have one.
  void finish();

  // Live as long as the analysis, and change while packets are added.
  [[nodiscard]] const ConnectionTable& connections() const;
  [[nodiscard]] const Totals& totals() const;
  [[nodiscard]] const PacketDecoder::Counts& packet_counts() const;
  [[nodiscard]] std::uint64_t tcp_connections() const;
  [[nodiscard]] std::uint64_t tcp_forgotten() const;
  [[nodiscard]] const InfinibandCounts& infiniband() const;

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
