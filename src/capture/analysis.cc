#include "weft/capture/analysis.hpp"

#include <algorithm>

#include "capture/traffic_fan.h"
#include "weft/capture/operation_tracker.hpp"
#include "weft/capture/transports.hpp"

namespace weft::capture {

struct Analysis::Work {
  explicit Work(const Limits& limits)
      : tracker(connections, operations),
        iwarp({limits.tcp, limits.search_bytes}, connections, traffic),
        infiniband(limits.infiniband, connections, traffic),
        decoder(iwarp.segments(), infiniband.packets()) {
    traffic.add(tracker);
  }

  ConnectionTable connections;
  TrafficFan traffic;
  OperationFan operations;
  OperationTracker tracker;
  IwarpTransport iwarp;
  InfinibandTransport infiniband;
  PacketDecoder decoder;
  Totals totals;
};

Analysis::Analysis(const Limits& limits) : work_(std::make_unique<Work>(limits)) {}
Analysis::~Analysis() = default;

void Analysis::add_sink(TrafficSink& sink) {
  work_->traffic.add(sink);
}

void Analysis::add_operations(OperationSink& sink) {
  work_->operations.add(sink);
}

void Analysis::add(const RawPacket& packet) {
  Totals& totals = work_->totals;
  if (totals.frames++ == 0) totals.first_ns = packet.time_ns;
  totals.last_ns = std::max(totals.last_ns, packet.time_ns);
  totals.wire_bytes += packet.wire_bytes;
  totals.captured_bytes += packet.bytes.size();
  if (packet.bytes.size() < packet.wire_bytes) ++totals.truncated_frames;
  work_->decoder.decode(packet, {.frame = totals.frames, .time_ns = packet.time_ns});
}

void Analysis::finish() {
  work_->iwarp.segments().finish();
  work_->infiniband.packets().finish();
  work_->tracker.finish();
}

const ConnectionTable& Analysis::connections() const {
  return work_->connections;
}

const Analysis::Totals& Analysis::totals() const {
  return work_->totals;
}

const PacketDecoder::Counts& Analysis::packet_counts() const {
  return work_->decoder.counts();
}

std::uint64_t Analysis::tcp_connections() const {
  return work_->iwarp.segments().connections();
}

std::uint64_t Analysis::tcp_forgotten() const {
  return work_->iwarp.segments().forgotten();
}

const InfinibandCounts& Analysis::infiniband() const {
  return work_->infiniband.counts();
}

}  // namespace weft::capture
