#include "weft/capture/analysis.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "capture/traffic_fan.h"
#include "weft/capture/operation_tracker.hpp"
#include "weft/capture/transports.hpp"

namespace weft::capture {
namespace {

bool is_over(const Connection& connection) {
  using End = Connection::End;
  return connection.end == End::closed || connection.end == End::reset ||
         connection.end == End::terminated || connection.end == End::rejected;
}

}  // namespace

struct Analysis::Work {
  explicit Work(const Limits& limits)
      : connections_limit(limits.connections),
        tracker(connections, operations, limits.operations),
        iwarp({limits.tcp, limits.search_bytes}, connections, traffic),
        infiniband(limits.infiniband, connections, traffic, &management),
        decoder(iwarp.segments(), infiniband.packets()) {
    traffic.add(tracker);
  }

  void forget_some();
  void forget(Connection& connection);

  std::size_t connections_limit;
  // The order of these members matters: each one holds references only to members above it, so the
  // members that are destroyed first are those that use the others.
  ConnectionTable connections;
  TrafficFan traffic;
  OperationFan operations;
  ManagementFan management;
  OperationTracker tracker;
  IwarpTransport iwarp;
  InfinibandTransport infiniband;
  PacketDecoder decoder;
  Totals totals;
};

// Forgets connections that have ended, then those that were idle for longest.
void Analysis::Work::forget_some() {
  std::vector<std::pair<std::uint64_t, ConnectionId>> order;  // the first ones are forgotten first
  order.reserve(connections.known());
  for (const Connection& one : connections) {
    // Frames are numbered from 1, so 0 sorts the connections that are over before all others.
    order.emplace_back(is_over(one) ? 0 : one.last.frame, one.id);
  }
  // Forgets an eighth more than necessary, so that the whole table is sorted rarely.
  const std::size_t count = connections.known() - connections_limit + connections_limit / 8;
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::partial_sort(order.begin(), end, order.end());
  for (auto one = order.begin(); one != end; ++one) forget(connections[one->second]);
}

// The transport first reports what is open, which may still use the entry in the table.
void Analysis::Work::forget(Connection& connection) {
  const ConnectionId id = connection.id;
  if (connection.transport == Transport::iwarp) {
    iwarp.forget(id);
  } else {
    infiniband.forget(id);
  }
  // Sinks read the entry in on_forget(), so its end is set before that, and the entry is removed
  // last.
  if (connection.end == Connection::End::open) connection.end = Connection::End::forgotten;
  traffic.on_close(id);
  traffic.on_forget(id);
  connections.forget(id);
}

Analysis::Analysis(const Limits& limits) : work_(std::make_unique<Work>(limits)) {}
Analysis::~Analysis() = default;

void Analysis::add_sink(TrafficSink& sink) {
  work_->traffic.add(sink);
}

void Analysis::add_operations(OperationSink& sink) {
  work_->operations.add(sink);
}

void Analysis::add_management(ManagementSink& sink) {
  work_->management.add(sink);
}

void Analysis::add(const RawPacket& packet) {
  Totals& totals = work_->totals;
  // Packets may be out of order in time. The first packet in the capture is the origin of all
  // relative times, even if a later packet has an earlier time.
  if (totals.frames++ == 0) totals.first_ns = packet.time_ns;
  totals.last_ns = std::max(totals.last_ns, packet.time_ns);
  totals.wire_bytes += packet.wire_bytes;
  totals.captured_bytes += packet.bytes.size();
  // The snap length of the capture has cut such a packet.
  if (packet.bytes.size() < packet.wire_bytes) ++totals.truncated_frames;
  work_->decoder.decode(packet, {.frame = totals.frames, .time_ns = packet.time_ns});
  // Connections are forgotten between packets only: within decode() a reference to one may be in
  // use.
  if (work_->connections.known() > work_->connections_limit) work_->forget_some();
}

// The transports pass their last events to the tracker, so it finishes after them.
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

std::vector<PacketDecoder::Named> Analysis::other_protocols() const {
  return work_->decoder.others();
}

std::vector<PacketDecoder::Named> Analysis::tunnels() const {
  return work_->decoder.tunnels();
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
