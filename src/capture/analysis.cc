#include "capture/analysis.h"

#include <algorithm>

namespace weft::capture {

Analysis::Analysis(const Limits& limits)
    : tracker_(connections_, operation_sinks_),
      shared_{connections_, traffic_, Budget(limits.search_bytes)},
      flows_(
          limits.tcp,
          [this](const TcpEndpoints& endpoints) {
            return std::make_unique<IwarpConnection>(shared_, endpoints);
          },
          &IwarpConnection::begins_anew),
      infiniband_(limits.infiniband, connections_, traffic_),
      decoder_(flows_, infiniband_) {
  traffic_.add(tracker_);
}

void Analysis::add(const RawPacket& packet) {
  if (totals_.frames++ == 0) totals_.first_ns = packet.time_ns;
  totals_.last_ns = std::max(totals_.last_ns, packet.time_ns);
  totals_.wire_bytes += packet.wire_bytes;
  totals_.captured_bytes += packet.bytes.size();
  if (packet.bytes.size() < packet.wire_bytes) ++totals_.truncated_frames;
  decoder_.decode(packet, {.frame = totals_.frames, .time_ns = packet.time_ns});
}

void Analysis::finish() {
  flows_.finish();
  infiniband_.finish();
  tracker_.finish();
}

}  // namespace weft::capture
