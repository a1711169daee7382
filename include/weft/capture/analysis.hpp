// Runs a whole analysis: the input is packets, the output is traffic and operations. It needs no
// file and no libpcap. Only one thread at a time may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/limits.hpp"
#include "weft/capture/management.hpp"
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
    std::size_t search_bytes = 64 * 1024 * 1024;  // memory for streams that may turn out to be MPA.
    OperationTracker::Limits operations;
    // Connections that are kept at a time. Above the limit an eighth is forgotten
    // (TrafficSink::on_close): first those that have ended, then those that were idle for longest.
    std::size_t connections = 16'384;
  };
  struct Totals {
    std::uint64_t frames = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t captured_bytes = 0;
    std::int64_t first_ns = 0;
    std::int64_t last_ns = 0;
    std::uint64_t truncated_frames = 0;  // frames that the snap length cut
  };

  // Begins an analysis with the default limits, or with a copy of `limits`.
  Analysis() : Analysis(Limits{}) {}
  explicit Analysis(const Limits& limits);
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;
  ~Analysis();

  // Adds a receiver of traffic. Add sinks before the first packet. They must outlive the analysis.
  // Each event goes to all sinks, in the order in which they were added.
  void add_sink(TrafficSink& sink);
  // Adds a receiver of operations. The conditions of add_sink() apply.
  void add_operations(OperationSink& sink);
  // Adds a receiver of InfiniBand's management datagrams. The conditions of add_sink() apply.
  void add_management(ManagementSink& sink);

  // Analyses one packet. Frames are numbered from 1 in the order of these calls.
  void add(const RawPacket& packet);
  // Ends the input and reports everything that is still open. Call it once, before the finish() of
  // sinks that have one.
  void finish();

  // Returns the connections that were found so far. This and the other references below are valid
  // as long as the analysis, and their content changes while packets are added.
  [[nodiscard]] const ConnectionTable& connections() const;
  // Returns the sums over all packets that were added. `first_ns` is the time of the first packet,
  // and `last_ns` the latest time of all.
  [[nodiscard]] const Totals& totals() const;
  // Returns how many packets were not passed to a transport, by reason; see PacketDecoder::Counts.
  [[nodiscard]] const PacketDecoder::Counts& packet_counts() const;
  // Returns the protocols of the packets that are not decoded; see PacketDecoder::others().
  [[nodiscard]] std::vector<PacketDecoder::Named> other_protocols() const;
  // Returns the tunnels of all packets; see PacketDecoder::tunnels().
  [[nodiscard]] std::vector<PacketDecoder::Named> tunnels() const;
  // Returns the number of TCP connections so far, with and without RDMA.
  [[nodiscard]] std::uint64_t tcp_connections() const;
  // Returns how many of them were forgotten because of TcpFlows::Limits::flows. Later segments of a
  // forgotten connection count as a new one.
  [[nodiscard]] std::uint64_t tcp_forgotten() const;
  // Returns what happened to the packets of InfiniBand and RoCE.
  [[nodiscard]] const InfinibandCounts& infiniband() const;

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
