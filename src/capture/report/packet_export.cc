#include "capture/report/packet_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "weft/capture/packet_decoder.hpp"
#include "wire/ib_transport.h"
#include "wire/pcapng.h"

namespace weft::capture {
namespace {

// Other programs recognise a connection by its handshake: three packets of the connection manager
// or of MPA, and acknowledgements of TCP between them.
constexpr std::uint32_t first_packets = 8;
// Queue pair 1 receives the messages of the connection manager (§12.1).
constexpr std::uint32_t management_queue_pair = 1;

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Stamp end_of(const Operation& operation) {
  return operation.confirmed && operation.confirmation.frame > operation.end.frame
             ? operation.confirmation
             : operation.end;
}

}  // namespace

std::size_t PacketExport::DirectionHash::operator()(const Direction& direction) const {
  constexpr std::size_t odd = 0x9E3779B1U;
  return ((direction.source.hash() * odd + direction.destination.hash()) * odd +
          direction.source_number) *
             odd +
         direction.destination_number;
}

PacketExport::Flow* PacketExport::flow(ConnectionId connection) {
  const auto known = flows_.find(connection);
  if (known != flows_.end()) return &known->second;
  if (flows_.size() >= max_connections) return nullptr;
  return &flows_[connection];
}

void PacketExport::include(ConnectionId connection, std::uint64_t first, std::uint64_t last) {
  if (Flow* const its = flow(connection)) its->ranges.add(first, last);
}

// The fixed options select one kind of exchange: --opcode operations, --xid RPCs.
void PacketExport::add(const Operation& operation) {
  if (selection_.xid) return;
  include(operation.connection, operation.start.frame, end_of(operation).frame);
}

void PacketExport::add(const Rpc& rpc) {
  if (selection_.kind) return;
  const RpcMessage& first = rpc.call ? *rpc.call : *rpc.reply;
  const RpcMessage& last = rpc.reply ? *rpc.reply : *rpc.call;
  include(rpc.connection, first.first.frame, last.last.frame);
}

void PacketExport::add(const StorageCommand& command) {
  if (selection_.kind) return;
  include(command.connection, first_stamp(command).frame, command.last.frame);
}

void PacketExport::add(const Finding& finding) {
  if (selection_.kind) return;
  for (const Stamp& stamp : finding.stamps) include(finding.connection, stamp.frame, stamp.frame);
}

void PacketExport::know(const Direction& direction, ConnectionId connection) {
  directions_[direction].push_back(connection);
}

void PacketExport::add(const Connection& connection) {
  const bool whole = selection_.takes_whole(connection, analysis_);
  if (!whole && !flows_.contains(connection.id)) return;
  Flow* const its = flow(connection.id);
  if (its == nullptr) {
    ++left_out_;
    return;
  }
  its->whole = whole;
  if (whole) its->ranges.add(connection.first.frame, connection.last.frame);
  const bool tcp = connection.transport == Transport::iwarp;
  if (connection.beginning == Connection::Beginning::handshake) {
    its->beginning = connection.first.frame;
    its->first_left = first_packets;
    if (!tcp) management_.add(connection.first.frame, connection.last.frame);
  }
  for (const Side side : {Side::a, Side::b}) {
    const Endpoint& from = connection.endpoint(side);
    const Endpoint& to = connection.endpoint(other(side));
    if (!to.known) continue;
    know({from.address, to.address, tcp ? from.number : 0, to.number, tcp}, connection.id);
  }
}

// With a range of times, a whole connection is one only within it.
bool PacketExport::wants(Flow& flow, const Stamp& stamp) const {
  if (flow.first_left > 0 && stamp.frame >= flow.beginning) {
    --flow.first_left;
    return true;
  }
  return flow.ranges.contains(stamp.frame) &&
         (!flow.whole || selection_.takes_time(stamp.time_ns, analysis_));
}

// Writes the blocks of a pcapng file. Each link type is an interface.
class PacketExport::Writer {
 public:
  explicit Writer(const Report::Write& out) : out_(out) {
    emit(wire::PcapngSection{.application = "weft dissect"});
  }

  void add(const RawPacket& packet, std::uint64_t frame) {
    const std::string comment = fmt::format("frame {}", frame);
    wire::PcapngPacket block;
    block.interface_id = interface(packet.link_type);
    block.timestamp = static_cast<std::uint64_t>(packet.time_ns);
    block.captured_bytes = static_cast<std::uint32_t>(packet.bytes.size());
    block.original_bytes = static_cast<std::uint32_t>(packet.wire_bytes);
    block.comment = comment;
    buffer_.resize(wire::PcapngPacket::head_bytes);
    block.emit_head(buffer_);
    out_(text_of(buffer_));
    out_({reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size()});
    buffer_.resize(block.tail_bytes());
    block.emit_tail(buffer_);
    out_(text_of(buffer_));
  }

 private:
  void emit(const auto& block) {
    buffer_.resize(block.size());
    block.emit(buffer_);
    out_(text_of(buffer_));
  }
  std::uint32_t interface(std::uint16_t link_type) {
    const auto known = std::ranges::find(links_, link_type);
    const auto number = static_cast<std::uint32_t>(known - links_.begin());
    if (known != links_.end()) return number;
    links_.push_back(link_type);
    wire::PcapngInterface description;
    description.link_type = link_type;
    description.resolution = wire::PcapngInterface::resolution_nanoseconds;
    emit(description);
    return number;
  }

  const Report::Write& out_;
  std::vector<std::byte> buffer_;
  std::vector<std::uint16_t> links_;
};

// Decodes one packet after the other to the connection that it belongs to.
class PacketExport::Reader final : private TcpSegments, private InfinibandPackets {
 public:
  explicit Reader(PacketExport& owner) : owner_(owner), decoder_(*this, *this) {}

  bool wants(const RawPacket& packet, const Stamp& stamp) {
    wanted_ = false;
    const std::uint64_t fragments = decoder_.counts().fragments;
    decoder_.decode(packet, stamp);
    if (decoder_.counts().fragments == fragments) return wanted_;
    // Only the last fragment of a datagram is known to belong to a connection.
    return std::ranges::any_of(owner_.flows_, [&](const auto& entry) {
      return entry.second.ranges.contains(stamp.frame);
    });
  }

 private:
  void look_up(const Direction& direction, const Stamp& stamp, bool wanted_anyway) {
    const auto known = owner_.directions_.find(direction);
    if (known == owner_.directions_.end()) return;
    wanted_ = wanted_ || wanted_anyway;
    for (const ConnectionId id : known->second) {
      if (owner_.wants(owner_.flows_.at(id), stamp)) wanted_ = true;
    }
  }
  // The connection begins with the handshake of MPA, and that of TCP comes before it.
  void on_segment(const TcpSegment& segment) override {
    look_up({segment.source, segment.destination, segment.header.source_port,
             segment.header.destination_port, true},
            segment.stamp, segment.header.has(wire::tcp_flag::syn));
  }
  void on_packet(const IbPacket& packet) override {
    const auto bth = wire::Bth::parse(packet.transport);
    if (!bth) return;
    if (bth->destination_qp == management_queue_pair) {
      wanted_ = wanted_ || owner_.management_.contains(packet.stamp.frame);
    }
    look_up({packet.source, packet.destination, 0, bth->destination_qp, false}, packet.stamp,
            false);
  }
  void finish() override {}

  PacketExport& owner_;
  PacketDecoder decoder_;
  bool wanted_ = false;
};

std::uint64_t PacketExport::write(PacketSource& source, const Report::Write& out,
                                  const std::function<bool()>& stop) {
  for (const Connection& connection : analysis_.connections()) add(connection);
  Writer writer(out);
  Reader reader(*this);
  RawPacket packet;
  std::uint64_t written = 0;
  const std::uint64_t frames = analysis_.totals().frames;
  for (std::uint64_t frame = 1; frame <= frames && !stop() && source.next(packet); ++frame) {
    if (!reader.wants(packet, {.frame = frame, .time_ns = packet.time_ns})) continue;
    writer.add(packet, frame);
    ++written;
  }
  return written;
}

}  // namespace weft::capture
