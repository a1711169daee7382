#include "capture/infiniband/ib_analysis.h"

#include <algorithm>

#include "wire/icrc.h"

namespace weft::capture {
namespace {

// Value of the ECN bits of a packet that a switch marked (RFC 3168 §5).
constexpr std::uint8_t congestion_experienced = 3;

// Mixes one value into a hash; the multiplier is the 64-bit golden ratio.
std::size_t mixed(std::size_t seed, std::size_t value) {
  const std::uint64_t mixed = (seed ^ value) * std::uint64_t{0x9E3779B97F4A7C15} + (seed >> 29);
  return static_cast<std::size_t>(mixed);
}

bool is_connected(wire::IbTransport transport) {
  return transport == wire::IbTransport::rc || transport == wire::IbTransport::uc ||
         transport == wire::IbTransport::xrc;
}

std::uint32_t icrc_of(const IbPacket& packet, Bytes covered) {
  switch (packet.carrier) {
    case IbPacket::Carrier::native:
      return wire::Icrc::native(packet.network, covered).value();
    case IbPacket::Carrier::roce_v1:
      return wire::Icrc::roce_v1(packet.network, covered).value();
    case IbPacket::Carrier::roce_v2:
      break;
  }
  return wire::Icrc::roce_v2(packet.network, covered).value();
}

IbFirstPackets::Icrc compare_icrc(const IbPacket& packet) {
  const auto view = wire::IbPacketView::check(packet.transport, packet.wire_bytes);
  if (!view || !view->icrc() || packet.from_fragments) return IbFirstPackets::Icrc::unknown;
  return *view->icrc() == icrc_of(packet, view->covered()) ? IbFirstPackets::Icrc::correct
                                                           : IbFirstPackets::Icrc::wrong;
}

// Limit on the hosts that are kept because headers of their packets are cut.
constexpr std::size_t most_cut_hosts = 4096;

}  // namespace

std::size_t IbAnalysis::HashFlowKey::operator()(const FlowKey& key) const {
  return mixed(mixed(key.source.hash(), key.destination.hash()), key.queue_pair);
}

std::size_t IbAnalysis::HashDatagramKey::operator()(const DatagramKey& key) const {
  return mixed(HashFlowKey{}(key.to_b), key.queue_pair_a);
}

IbAnalysis::IbAnalysis(const Limits& limits, ConnectionTable& connections, TrafficSink& sink,
                       ManagementSink* management)
    : limits_(limits),
      table_(connections),
      sink_(sink),
      management_(management),
      shared_{connections, sink, limits.connection, counts_, Budget(limits.held_bytes)},
      manager_(*this) {}

// --- Packets -------------------------------------------------------------------------------------

void IbAnalysis::on_packet(const IbPacket& packet) {
  if (first_packets_.decided()) return take(packet);
  const IbFirstPackets::Icrc icrc = compare_icrc(packet);
  if (icrc == IbFirstPackets::Icrc::correct) good_checksum_seen_ = true;
  if (!first_packets_.add(packet, icrc)) return take(packet);
  if (first_packets_.decided()) take_first_packets();
}

void IbAnalysis::take_first_packets() {
  first_packets_.take([&](const IbPacket& packet) { take(packet); });
}

// Checks one packet, and passes it to the datagrams or to its connection. Congestion notifications
// carry no data, so they are only counted.
void IbAnalysis::take(const IbPacket& packet) {
  ++counts_.packets;
  const auto view = wire::IbPacketView::check(packet.transport, packet.wire_bytes);
  if (!view) {
    const bool cut = view.error() == wire::WireError::truncated;
    if (!cut) (void)suspects_.may_be_roce(packet, false);
    ++(cut ? counts_.cut_short : counts_.malformed);
    if (cut && cut_hosts_.size() < most_cut_hosts) cut_hosts_.insert(packet.source);
    return;
  }
  if (!checksum_fits(packet, *view)) return;
  if (is_copy(packet, *view)) {
    ++counts_.copies;
    return;
  }
  const wire::Bth& bth = view->bth();
  note_congestion(packet, bth);
  const IbSegment segment{.stamp = packet.stamp,
                          .headers = view->headers(),
                          .payload = view->payload(),
                          .payload_wire_bytes = view->payload_wire_bytes()};
  if (bth.opcode == wire::congestion_notification) return;
  if (view->layout().known && bth.opcode.transport == wire::IbTransport::ud) {
    return on_datagram(packet, segment);
  }
  if (!view->layout().known || !is_connected(bth.opcode.transport)) {
    ++counts_.unknown;
    return;
  }
  on_connected({packet.source, packet.destination, bth.destination_qp},
               {packet.hop_limit, packet.source_port}, segment);
}

// Returns whether the packet may be used. A receiver drops a packet with a wrong ICRC, so it is
// ignored here as well. If no packet so far had a correct ICRC, the capture was taken before the
// ICRC was filled in, and wrong ones are accepted.
bool IbAnalysis::checksum_fits(const IbPacket& packet, const wire::IbPacketView& view) {
  const bool checked = view.icrc() && !packet.from_fragments;
  const std::uint32_t expected = checked ? icrc_of(packet, view.covered()) : 0;
  if (checked && *view.icrc() == expected) {
    good_checksum_seen_ = true;
    return true;
  }
  if (!suspects_.may_be_roce(packet, IbSuspects::is_plausible(view))) {
    ++counts_.not_roce;
    return false;
  }
  if (!checked) return true;
  ++counts_.bad_checksum;
  const auto flow = flows_.find({packet.source, packet.destination, view.bth().destination_qp});
  if (flow != flows_.end() && flow->second.connection) {
    sink_.on_violation(
        flow->second.connection->origin(flow->second.side, packet.stamp),
        {.kind = Violation::Kind::bad_checksum, .found = *view.icrc(), .expected = expected});
  }
  return !good_checksum_seen_;
}

// Returns whether the capture has this packet already. The ICRC covers everything that does not
// change on the way. A requester repeats a packet after a NAK, or after a timeout that is longer
// than what counts as a copy.
bool IbAnalysis::is_copy(const IbPacket& packet, const wire::IbPacketView& view) {
  const wire::Bth& bth = view.bth();
  CopyFilter::Key key;
  key.add(std::uint64_t{bth.destination_qp} << 32 | bth.psn);
  key.add(std::uint64_t{packet.wire_bytes} << 40 | std::uint64_t{view.icrc().value_or(0)} << 8 |
          bth.opcode.code());
  if (!view.icrc()) key.add(packet.source.hash()).add(packet.destination.hash());
  if (copies_.is_copy(key, packet.stamp)) return true;
  const auto kind = view.headers().aeth.kind();
  const bool refuses = kind == wire::Aeth::Kind::nak || kind == wire::Aeth::Kind::rnr_nak;
  if (view.layout().aeth && refuses) copies_.begin_anew();
  return false;
}

// Counts and reports ECN marks and notifications, if the connection of the packet is known already.
void IbAnalysis::note_congestion(const IbPacket& packet, const wire::Bth& bth) {
  const bool notified = bth.opcode == wire::congestion_notification;
  if (notified) ++counts_.congestion_notifications;
  if (!notified && packet.ecn != congestion_experienced) return;
  const auto flow = flows_.find({packet.source, packet.destination, bth.destination_qp});
  if (flow == flows_.end() || !flow->second.connection) return;
  const IbConnection& connection = *flow->second.connection;
  sink_.on_congestion(connection.origin(flow->second.side, packet.stamp),
                      notified ? Congestion::notified : Congestion::marked);
}

// First joins or gives up the undecided flows, because their packets belong to connections that
// finish next.
void IbAnalysis::finish() {
  take_first_packets();
  join_all_at_end();
  for (const FlowKey& key : std::vector<FlowKey>(std::move(undecided_))) {
    Flow& flow = flows_[key];
    if (flow.connection || flow.undecided.empty()) continue;
    give_up_joining(key, flow, flow.undecided.front().get());
  }
  for (auto& [id, connected] : connections_) finish(connected);
}

// What is missing may be a packet of which the header was cut.
void IbAnalysis::finish(Connected& connected) {
  IbConnection& connection = connected.connection;
  release_restart(connected, false);
  for (const FlowKey& key : connected.flows) {
    const auto flow = flows_.find(key);
    if (flow == flows_.end() || flow->second.connection != &connection) continue;
    flow->second.waits = false;
    pass_on_undecided(flow->second);
  }
  for (const Side side : {Side::a, Side::b}) {
    const Connection& entry = connection.connection();
    if (!cut_hosts_.contains(entry.endpoint(side).address)) continue;
    sink_.on_gap(connection.origin(side, entry.last), {.cut = true});
  }
  connection.finish();
}

// Removes every reference to the connection: flows, unjoined entries, connection manager state.
void IbAnalysis::forget(ConnectionId id) {
  if (const DatagramKey* key = datagram_keys_.find(id)) {
    datagrams_.erase(*key);
    datagram_keys_.erase(id);
  }
  Connected* const connected = connections_.find(id);
  if (connected == nullptr) return;
  IbConnection& connection = connected->connection;
  finish(*connected);
  for (const FlowKey& key : connected->flows) {
    const auto flow = flows_.find(key);
    if (flow != flows_.end() && flow->second.connection == &connection) flows_.erase(flow);
  }
  std::erase_if(unpaired_, [&](const Unpaired& one) { return one.connection == &connection; });
  manager_.forget(connection);
  connections_.erase(id);
}

// --- Datagrams -----------------------------------------------------------------------------------

// Passes management datagrams to the connection manager, and all others on as Sends. A datagram is
// a whole message, so it needs no reordering.
void IbAnalysis::on_datagram(const IbPacket& packet, const IbSegment& segment) {
  const std::uint32_t receiver = segment.headers.bth.destination_qp;
  const std::uint32_t sender = segment.headers.deth.source_qp;
  if (receiver <= wire::general_services_qp) {
    ++counts_.management;
    if (receiver == wire::general_services_qp) {
      manager_.on_datagram({segment.stamp, packet.source, packet.destination}, segment.payload);
    }
    return report_management(packet, segment);
  }
  Side side = Side::a;
  Connection& connection = datagrams({{packet.source, packet.destination, receiver}, sender}, side);
  if (connection.frames++ == 0) connection.first = segment.stamp;
  connection.last = segment.stamp;
  ++connection.side_frames[side == Side::a ? 0 : 1];
  const Origin origin{
      .connection = connection.id, .side = side, .stamp = segment.stamp, .position = segment.psn()};
  if (packet.ecn == congestion_experienced) sink_.on_congestion(origin, Congestion::marked);
  if (const auto broken = broken_form(segment)) sink_.on_violation(origin, *broken);
  sink_.on_send(origin,
                {.message = segment.psn(),
                 .kind = segment.headers.bth.solicited ? SendKind::solicited : SendKind::plain,
                 .bytes = segment.payload,
                 .missing_bytes = segment.missing_bytes(),
                 .last = true,
                 .has_immediate = segment.headers.layout().immediate,
                 .immediate = segment.headers.immediate});
}

void IbAnalysis::report_management(const IbPacket& packet, const IbSegment& segment) {
  const auto mad = wire::MadHeader::parse(segment.payload);
  if (management_ == nullptr || !mad) return;
  management_->on_management({.stamp = segment.stamp,
                              .source = packet.source,
                              .destination = packet.destination,
                              .queue_pair = segment.headers.bth.destination_qp,
                              .management_class = mad->management_class,
                              .class_version = mad->class_version,
                              .method = mad->method,
                              .status = mad->status,
                              .transaction = mad->transaction,
                              .attribute = static_cast<std::uint16_t>(mad->attribute),
                              .modifier = mad->modifier,
                              .message = segment.payload.subspan(wire::MadHeader::header_bytes)});
}

// Finds or creates the connection of two datagram queue pairs. `side` is set to the sender: `a`
// sent first.
Connection& IbAnalysis::datagrams(const DatagramKey& key, Side& side) {
  side = Side::a;
  if (const auto known = datagrams_.find(key); known != datagrams_.end()) {
    return table_[known->second];
  }
  const DatagramKey turned{{key.to_b.destination, key.to_b.source, key.queue_pair_a},
                           key.to_b.queue_pair};
  if (const auto known = datagrams_.find(turned); known != datagrams_.end()) {
    side = Side::b;
    return table_[known->second];
  }
  const bool named_by_manager =
      std::ranges::find(services_, std::pair(key.to_b.destination, key.to_b.queue_pair)) !=
      services_.end();
  Connection& connection =
      table_.add({.transport = Transport::ud,
                  .a = {.address = key.to_b.source, .number = key.queue_pair_a},
                  .b = {.address = key.to_b.destination, .number = key.to_b.queue_pair},
                  .beginning = named_by_manager ? Connection::Beginning::handshake
                                                : Connection::Beginning::traffic});
  datagrams_.emplace(key, connection.id);
  datagram_keys_.get(connection.id, key);
  return connection;
}

// Remembers a queue pair that SIDR named; the oldest is dropped above the limit.
void IbAnalysis::on_service(const HostAddress& host, std::uint32_t queue_pair) {
  const std::pair service(host, queue_pair);
  if (std::ranges::find(services_, service) != services_.end()) return;
  if (services_.size() == limits_.services) services_.pop_front();
  services_.push_back(service);
}

}  // namespace weft::capture
