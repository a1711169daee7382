#include "capture/sources/clock_meter.h"

#include <algorithm>
#include <cstdlib>

#include "capture/sources/copy_filter.h"
#include "wire/ib_transport.h"

namespace weft::capture {
namespace {

// With fewer samples a single wrong pair or a long delay could decide the median.
constexpr std::size_t few_samples = 8;
// Two interfaces of one machine differ by less.
constexpr std::int64_t smallest_offset_ns = 10'000;

// The samples of one direction.
using Samples = std::vector<std::int64_t>;

// The samples change their order, which no caller needs.
std::int64_t median(Samples& samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// A pair of hosts has the same key in both directions.
CopyFilter::Key hosts_key(const HostAddress& source, const HostAddress& destination) {
  CopyFilter::Key key;
  const auto [low, high] = std::minmax({source.hash(), destination.hash()});  // by value
  return key.add(low).add(high);
}

}  // namespace

// Enters a packet. A retransmission has the key of its original and a much later time, so neither
// of them may be paired.
void ClockTrack::note(Table& table, std::uint64_t key, const Stamp& stamp, bool forward) {
  const auto [at, made] = table.try_emplace(key, Seen{stamp.time_ns, forward, true});
  if (!made) at->second.unique = false;
}

void ClockTrack::read(PacketSource& source, std::size_t packets) {
  RawPacket packet;
  for (std::size_t i = 0; i < packets && source.next(packet); ++i) {
    decoder_.decode(packet, {.frame = i + 1, .time_ns = packet.time_ns});
  }
}

void ClockTrack::on_segment(const TcpSegment& segment) {
  const auto& header = segment.header;
  const bool forward = segment.source.hash() < segment.destination.hash();
  const std::uint64_t ports = std::uint64_t{header.source_port} << 16 | header.destination_port;
  const std::uint64_t turned = std::uint64_t{header.destination_port} << 16 | header.source_port;
  CopyFilter::Key hosts = hosts_key(segment.source, segment.destination);
  CopyFilter::Key whole = hosts;
  whole.add(ports << 32 | header.sequence);
  whole.add(std::uint64_t{header.acknowledgement} << 32 | std::uint64_t{header.window} << 16 |
            header.flags);
  whole.add(segment.wire_bytes);
  note(packets_, whole.value(), segment.stamp, forward);
  // A receiver acknowledges the sequence number after the last byte, so the key of a request has
  // that number.
  if (segment.wire_bytes > 0) {
    const auto end = header.sequence + static_cast<std::uint32_t>(segment.wire_bytes);
    CopyFilter::Key key = hosts;
    note(requests_, key.add(ports << 32 | end).value(), segment.stamp, forward);
  }
  if (header.has(wire::tcp_flag::ack)) {
    CopyFilter::Key key = hosts;
    note(answers_, key.add(turned << 32 | header.acknowledgement).value(), segment.stamp, forward);
  }
}

// An acknowledgement does not name the queue pair of the requester, so the key of requests has the
// hosts and the PSN only.
void ClockTrack::on_packet(const IbPacket& packet) {
  const auto headers = wire::Bth::parse(packet.transport);
  if (!headers) return;
  const bool forward = packet.source.hash() < packet.destination.hash();
  const CopyFilter::Key hosts = hosts_key(packet.source, packet.destination);
  CopyFilter::Key whole = hosts;
  whole.add(std::uint64_t{headers->destination_qp} << 32 | headers->psn);
  whole.add(std::uint64_t{packet.wire_bytes} << 8 | headers->opcode.code());
  note(packets_, whole.value(), packet.stamp, forward);
  const bool answers = headers->opcode.operation >= wire::IbOperation::read_response_first &&
                       headers->opcode.operation <= wire::IbOperation::atomic_acknowledge;
  CopyFilter::Key key = hosts;
  key.add(std::uint64_t{forward != answers} << 32 | headers->psn);
  note(answers ? answers_ : requests_, key.value(), packet.stamp, forward);
}

std::optional<ClockTrack::Difference> ClockTrack::compare(const ClockTrack& other) const {
  Samples ahead;   // the difference of the clocks, and the time that packets need
  Samples behind;  // the difference of the clocks, without the time that packets need
  const auto match = [](const Table& mine, const Table& theirs, auto take) {
    for (const auto& [key, seen] : mine) {
      const auto found = theirs.find(key);
      if (!seen.unique || found == theirs.end() || !found->second.unique) continue;
      take(seen, found->second);
    }
  };
  // The same packet at both places: it needs time in one direction, and the other way round.
  match(packets_, other.packets_, [&](const Seen& here, const Seen& there) {
    (here.forward ? ahead : behind).push_back(there.time_ns - here.time_ns);
  });
  // Requests at one place, and their answers at the other one.
  if (ahead.size() + behind.size() < few_samples) {
    // Too few packets are the same in both captures, so the two samples of different kinds are not
    // mixed.
    ahead.clear();
    behind.clear();
    match(requests_, other.answers_, [&](const Seen& here, const Seen& there) {
      ahead.push_back(there.time_ns - here.time_ns);
    });
    match(answers_, other.requests_, [&](const Seen& here, const Seen& there) {
      behind.push_back(there.time_ns - here.time_ns);
    });
  }
  const std::size_t samples = ahead.size() + behind.size();
  if (samples < few_samples) return {};
  if (ahead.empty() || behind.empty()) {
    // Of one direction the time that packets need is unknown. Only an answer before its request
    // shows that the clocks differ.
    Samples& known = ahead.empty() ? behind : ahead;
    const std::int64_t offset_ns = median(known);
    const bool impossible = ahead.empty() ? offset_ns > 0 : offset_ns < 0;
    if (!impossible || std::abs(offset_ns) < smallest_offset_ns) return {};
    return Difference{offset_ns, samples};
  }
  const std::int64_t first_ns = median(ahead);
  const std::int64_t second_ns = median(behind);
  // The time that packets need is assumed to be equal in both directions, so it cancels out in the
  // mean.
  const std::int64_t offset_ns = second_ns + (first_ns - second_ns) / 2;
  const std::int64_t travel_ns = std::abs(first_ns - second_ns) / 2;
  if (std::abs(offset_ns) <= std::max(travel_ns, smallest_offset_ns)) return {};
  return Difference{offset_ns, samples};
}

}  // namespace weft::capture
