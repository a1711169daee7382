#include "capture/alterations.h"

#include <algorithm>

#include "weft/capture/ib_packet.hpp"
#include "weft/capture/packet_decoder.hpp"
#include "weft/capture/tcp_segment.hpp"
#include "wire/ib_transport.h"

namespace weft::capture::test {
namespace {

// Keeps the sender of the packet that is decoded.
class Senders final : public TcpSegments, public InfinibandPackets {
 public:
  void on_segment(const TcpSegment& segment) override {
    last = {.tcp = true,
            .source = segment.source,
            .destination = segment.destination,
            .source_number = segment.header.source_port,
            .destination_number = segment.header.destination_port,
            .payload_bytes = segment.wire_bytes,
            .syn = segment.header.has(wire::tcp_flag::syn),
            .fin = segment.header.has(wire::tcp_flag::fin),
            .rst = segment.header.has(wire::tcp_flag::rst)};
  }
  void on_packet(const IbPacket& packet) override {
    const auto bth = wire::Bth::parse(packet.transport);
    if (!bth) return;
    last = {.infiniband = true,
            .source = packet.source,
            .destination = packet.destination,
            .destination_number = bth->destination_qp,
            .payload_bytes = packet.wire_bytes};
  }
  void finish() override {}

  SentPacket last;
};

}  // namespace

MadeCapture numbered(MadeCapture capture) {
  for (std::size_t i = 0; i < capture.size(); ++i) capture[i].number = i;
  return capture;
}

bool SentPacket::is_of(const Connection& connection, Side side) const {
  const Endpoint& from = connection.endpoint(side);
  const Endpoint& to = connection.endpoint(other(side));
  if (!(source == from.address) || !(destination == to.address)) return false;
  if (connection.transport == Transport::iwarp) {
    return tcp && source_number == from.number && destination_number == to.number;
  }
  const bool named = !to.known || destination_number == to.number;
  return infiniband && (named || is_management());
}

std::vector<SentPacket> sent_packets(const MadeCapture& capture) {
  Senders senders;
  PacketDecoder decoder(senders, senders);
  std::vector<SentPacket> sent;
  std::uint64_t frame = 0;
  for (const MadePacket& packet : capture) {
    senders.last = {};
    // A second apart, so that none is taken for a copy of another one.
    const auto time_ns = static_cast<std::int64_t>(++frame) * 1'000'000'000;
    decoder.decode({.time_ns = time_ns,
                    .link_type = packet.link_type,
                    .bytes = packet.bytes,
                    .wire_bytes = packet.wire_bytes},
                   {.frame = frame, .time_ns = time_ns});
    sent.push_back(senders.last);
  }
  return sent;
}

Alterations::Alterations(const MadeCapture& original, const std::vector<SentPacket>& sent,
                         const MadeCapture& altered)
    : sent_(sent), altered_(altered), places_(original.size()), whole_(original.size()) {
  for (std::size_t i = 0; i < altered.size(); ++i) {
    const std::size_t number = altered[i].number;
    places_[number].push_back(i);
    if (altered[i].bytes == original[number].bytes) whole_[number] = true;
  }
}

bool Alterations::lacks(const Connection& connection, Side side, PacketRange range) const {
  const std::size_t end = std::min(range.last, sent_.size() - 1) + 1;
  for (std::size_t i = range.first; i < end; ++i) {
    if (lacks_packet(i) && sent_[i].is_of(connection, side)) return true;
  }
  return false;
}

bool Alterations::repeats(const Connection& connection, Side side) const {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    if (places_[i].size() > 1 && sent_[i].is_of(connection, side)) return true;
  }
  return false;
}

bool Alterations::silences(const Connection& connection, Side side) const {
  for (std::size_t i = connection.first.frame - 1; i < connection.last.frame; ++i) {
    const SentPacket& packet = sent_[altered_[i].number];
    if (packet.is_of(connection, side) && !packet.is_management()) return false;
  }
  return true;
}

bool Alterations::lacks_end(const Connection& connection, Side side) const {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    const SentPacket& packet = sent_[i];
    const bool may_end = packet.fin || (packet.infiniband && packet.is_management());
    if (may_end && lacks_packet(i) && packet.is_of(connection, side)) return true;
  }
  return false;
}

bool Alterations::only_repeats(const Connection& connection) const {
  const auto first = static_cast<std::size_t>(connection.first.frame) - 1;
  const auto last = static_cast<std::size_t>(connection.last.frame) - 1;
  for (std::size_t i = first; i <= last; ++i) {
    const std::size_t number = altered_[i].number;
    const SentPacket& packet = sent_[number];
    if (!packet.is_of(connection, Side::a) && !packet.is_of(connection, Side::b)) continue;
    if (places_[number].front() >= first) return false;
  }
  return true;
}

}  // namespace weft::capture::test
