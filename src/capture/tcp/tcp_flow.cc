#include "capture/tcp/tcp_flow.h"

#include <algorithm>

namespace weft::capture {
namespace {

using wire::tcp_flag::ack;
using wire::tcp_flag::fin;
using wire::tcp_flag::rst;
using wire::tcp_flag::syn;

// After this many consecutive segments with impossible sequence numbers, a new connection has begun
// and its SYN was not captured.
constexpr std::uint64_t max_foreign_segments = 8;

// In a shuffled capture the SYN of this connection may come late, but not later than this.
constexpr std::uint64_t late_syn_packets = 1024;
constexpr std::uint64_t late_syn_bytes = 4 * 1024 * 1024;

bool is_answer(const TcpSegment& segment) {
  return segment.header.has(syn) && segment.header.has(ack);
}

TcpEndpoints endpoints_of(const TcpSegment& segment) {
  // A SYN with ACK is the response; its destination requested the connection.
  if (is_answer(segment)) {
    return {segment.destination, segment.source, segment.header.destination_port,
            segment.header.source_port};
  }
  return {segment.source, segment.destination, segment.header.source_port,
          segment.header.destination_port};
}

}  // namespace

TcpFlows::Flow::Flow(const TcpFlows& flows, Budget& budget, const TcpSegment& first)
    : flows_(flows),
      endpoints_(endpoints_of(first)),
      reader_(flows.make_reader_(endpoints_)),
      a_(*this, Side::a, flows.limits_.stream, budget),
      b_(*this, Side::b, flows.limits_.stream, budget) {}

Side TcpFlows::Flow::side_of(const TcpSegment& segment) const {
  return segment.header.source_port == endpoints_.port_a && segment.source == endpoints_.address_a
             ? Side::a
             : Side::b;
}

// Returns whether a segment shows that the connection has ended and another one uses its ports: by
// its content, by impossible sequence numbers, or by a SYN with another initial sequence number.
bool TcpFlows::Flow::succeeded_by(const TcpSegment& segment) const {
  if (reader_->indifferent() && flows_.looks_new_(segment.payload)) return true;
  const Half& own = half(side_of(segment));
  if (follows_end(own, segment)) return true;
  if (own.foreign_segments >= max_foreign_segments) return true;
  if (!segment.header.has(syn) || !own.stream.seen()) return false;
  // The SYN itself takes a sequence number, so the first byte has the next one.
  const std::uint32_t sequence = segment.header.sequence + 1;
  if (own.stream.from_the_start()) return *own.stream.first_sequence() != sequence;
  if (!own.stream.running()) return reset_ && !own.stream.may_begin(sequence, late_syn_bytes);
  if (over_ || reset_) return true;
  const std::uint64_t begin = own.stream.position_of(sequence);
  return packets_ > late_syn_packets || begin > own.stream.position() ||
         own.stream.position() - begin > late_syn_bytes;
}

// Returns whether the segment has payload that cannot be of this connection, because that has
// ended: behind a FIN, far from everything before, or the beginning of another one. What was sent
// before a reset, or is sent again, may be captured after it.
bool TcpFlows::Flow::follows_end(const Half& own, const TcpSegment& segment) const {
  if (segment.wire_bytes == 0 || !(over_ || reset_) || !own.stream.running()) return false;
  const std::uint32_t sequence = segment.header.sequence + (segment.header.has(syn) ? 1 : 0);
  const std::uint64_t begin = own.stream.position_of(sequence);
  if (own.stream.at_end() && over_) {
    if (begin + segment.wire_bytes > own.stream.end()) return true;
    if (begin + late_syn_bytes < own.stream.end()) return true;
  }
  const bool is_first = own.stream.first_sequence() == sequence;
  const bool certain = over_ || own.stream.from_the_start();
  return certain && !is_first && flows_.looks_new_(segment.payload);
}

// Calls on_start once, before the first byte or hole of a side.
void TcpFlows::Flow::announce(Side side) {
  if (half(side).announced) return;
  half(side).announced = true;
  reader_->on_start(side, half(side).stream.from_the_start());
}

// Handles one segment in the order SYN, ACK, payload, FIN, RST, so that a segment may do everything
// at once.
void TcpFlows::Flow::on_segment(const TcpSegment& segment) {
  if (reader_->indifferent()) return;
  const Side side = side_of(segment);
  Half& own = half(side);
  Half& peer = half(other(side));
  ++packets_;
  reader_->on_packet(side, segment.stamp);
  own.path.see({.hop_limit = segment.hop_limit}, [&](const PathChange& change) {
    reader_->on_path_change(side, segment.stamp, change);
  });
  const auto& header = segment.header;
  if (header.has(syn)) own.stream.begin(header.sequence + 1);
  if (header.has(ack) && peer.stream.acknowledge(header.acknowledgement)) {
    reader_->on_received(side, segment.stamp, peer.stream.acknowledged());
  }
  watch_probe(side, segment);
  watch_window(side, segment);
  if (segment.wire_bytes > 0) take_payload(side, segment);
  if (header.has(fin)) take_end(side, segment);
  share_disorder();
  if (!own.stream.settled() || !peer.stream.settled()) settle(segment.stamp);
  withdraw_reset(side, segment);
  if (header.has(rst) && !over_) on_reset(side, segment);
  check_finished(segment.stamp);
  if (reset_ && !over_ && !is_early(*reset_)) report_reset(*reset_, segment.stamp);
}

// The sequence number of a reset is that of the next byte which its sender would have sent (RFC
// 9293 §3.10.7). If the capture holds that, or anything before the reset, later, the reset waits
// for it. A later reset of the same side may show that more is to come.
void TcpFlows::Flow::on_reset(Side side, const TcpSegment& segment) {
  const TcpStream& own = half(side).stream;
  const std::uint32_t sequence = segment.header.sequence;
  if (!reset_) {
    reset_ = EarlyReset{side, segment.stamp, sequence};
  } else if (reset_->side == side &&
             own.position_of(sequence) > own.position_of(reset_->sequence)) {
    reset_->sequence = sequence;
  }
}

// A reset with a sequence number that is far from this stream refuses a segment of an earlier
// connection (RFC 9293 §3.5.1, §3.10.7.4), if its sender goes on.
void TcpFlows::Flow::withdraw_reset(Side side, const TcpSegment& segment) {
  if (!reset_ || over_ || reset_->side != side || segment.header.has(rst)) return;
  const TcpStream& own = half(side).stream;
  if (own.running() && own.is_doubtful(own.position_of(reset_->sequence))) reset_.reset();
}

bool TcpFlows::Flow::is_early(const EarlyReset& reset) {
  if (!a_.stream.decided() || !b_.stream.decided()) return true;
  if (!a_.stream.running() || !b_.stream.running()) return false;
  TcpStream& own = half(reset.side).stream;
  const std::uint64_t position = own.position_of(reset.sequence);
  if (own.is_doubtful(position)) return true;
  own.sent_before(position);
  const bool possible = position <= own.acknowledged();
  return (possible && !own.passed(position)) || a_.stream.waits() || b_.stream.waits();
}

// The bytes that are held were sent before the reset, so they are delivered before it is reported.
void TcpFlows::Flow::report_reset(const EarlyReset& reset, const Stamp& now) {
  give_up_all(now);
  check_finished(now);
  if (over_) return;
  over_ = true;
  reader_->on_reset(reset.side, reset.stamp);
}

// A direction whose beginning is not known yet waits longer for it if the other one is out of
// order.
void TcpFlows::Flow::share_disorder() {
  if (a_.stream.running() && b_.stream.running()) return;
  if (a_.stream.out_of_order()) b_.stream.set_out_of_order();
  if (b_.stream.out_of_order()) a_.stream.set_out_of_order();
  // Each side begins with a SYN before anything else.
  if (a_.stream.from_the_start() && b_.stream.seen()) b_.stream.set_out_of_order();
  if (b_.stream.from_the_start() && a_.stream.seen()) a_.stream.set_out_of_order();
}

// A window of 0 is the same with each scale. That of a SYN is not scaled, and a side that resets or
// closes need not have one.
void TcpFlows::Flow::watch_window(Side side, const TcpSegment& segment) {
  const auto& header = segment.header;
  if (!header.has(ack) || header.has(syn) || header.has(rst) || header.has(fin)) return;
  Half& own = half(side);
  const bool closed = header.window == 0;
  if (closed == own.window_closed) return;
  own.window_closed = closed;
  reader_->on_window(side, segment.stamp, !closed);
}

// RFC 9293 §3.8.6.1: a probe has one byte of new data. Linux sends none, with a sequence number
// that is acknowledged already; an acknowledgement without data has the next one.
void TcpFlows::Flow::watch_probe(Side side, const TcpSegment& segment) {
  const auto& header = segment.header;
  if (!half(other(side)).window_closed || segment.wire_bytes > 1) return;
  if (header.has(syn) || header.has(fin) || header.has(rst)) return;
  const TcpStream& stream = half(side).stream;
  const bool old = stream.position_of(header.sequence) < stream.acknowledged();
  if (segment.wire_bytes == 1 || old) reader_->on_window_probe(side, segment.stamp);
}

// Reports a segment that is next while later ones wait.
void TcpFlows::Flow::report_late(Side side, const TcpSegment& segment) {
  const TcpStream& stream = half(side).stream;
  const Stamp* const since = stream.waits_since();
  if (since == nullptr || !stream.running()) return;
  const std::uint64_t begin = stream.position_of(segment.header.sequence);
  if (begin > stream.position() || begin + segment.wire_bytes <= stream.position()) return;
  reader_->on_late(side, segment.stamp, segment.stamp.time_ns - since->time_ns);
}

// Adds the payload of a segment. Its acknowledgement number shows what its sender had received; it
// waits until the other direction has delivered that, unless the number is not believed.
void TcpFlows::Flow::take_payload(Side side, const TcpSegment& segment) {
  Half& own = half(side);
  const TcpStream& peer = half(other(side)).stream;
  const std::uint64_t repeated_before = own.stream.repeated_bytes();
  const auto& header = segment.header;
  report_late(side, segment);
  const std::uint64_t needs =
      header.has(ack) ? std::min(peer.position_of(header.acknowledgement), peer.acknowledged()) : 0;
  const bool taken = own.stream.add({.stamp = segment.stamp,
                                     // TCP Fast Open: the payload follows the SYN.
                                     .sequence = header.sequence + (header.has(syn) ? 1 : 0),
                                     .bytes = segment.payload,
                                     .missing_bytes = segment.wire_bytes - segment.payload.size(),
                                     .needs = needs},
                                    peer, own.direction);
  own.foreign_segments = taken ? 0 : own.foreign_segments + 1;
  const std::uint64_t repeated = own.stream.repeated_bytes() - repeated_before;
  if (repeated > 0) reader_->on_repeat(side, segment.stamp, repeated);
}

// Sets the end of a direction. Where nothing else of it was captured, the FIN shows where it is.
void TcpFlows::Flow::take_end(Side side, const TcpSegment& segment) {
  TcpStream& own = half(side).stream;
  const std::uint32_t end = segment.header.sequence + (segment.header.has(syn) ? 1 : 0) +
                            static_cast<std::uint32_t>(segment.wire_bytes);
  if (!own.seen()) {
    own.add({.stamp = segment.stamp, .sequence = end, .bytes = {}}, half(other(side)).stream,
            half(side).direction);
  }
  own.finish_at(end);
}

// Delivers what is in order, alternately for both directions, because each may wait for the other.
// The timeouts are applied once.
void TcpFlows::Flow::settle(const Stamp& stamp) {
  bool watched = false;
  for (;;) {
    bool moved = a_.stream.deliver(b_.stream, a_.direction);
    moved = b_.stream.deliver(a_.stream, b_.direction) || moved;
    if (moved) continue;
    if (watched) return;
    watched = true;
    moved = a_.stream.watch(packets_, stamp, a_.direction);
    moved = b_.stream.watch(packets_, stamp, b_.direction) || moved;
    if (!moved) return;
  }
}

// Delivers everything that is left, with holes, in the order that gives the fewest of them.
void TcpFlows::Flow::give_up_all(const Stamp& stamp) {
  for (;;) {
    bool moved = a_.stream.deliver(b_.stream, a_.direction);
    moved = b_.stream.deliver(a_.stream, b_.direction) || moved;
    if (moved) continue;
    Half& first = a_.stream.gives_up_before(b_.stream) ? a_ : b_;
    Half& second = &first == &a_ ? b_ : a_;
    if (first.stream.give_up(stamp, first.direction)) continue;
    if (!second.stream.give_up(stamp, second.direction)) return;
  }
}

// Reports each FIN when all bytes before it were delivered.
void TcpFlows::Flow::check_finished(const Stamp& stamp) {
  for (const Side side : {Side::a, Side::b}) {
    Half& one = half(side);
    if (one.finished || !one.stream.at_end()) continue;
    one.finished = true;
    if (!over_) reader_->on_finished(side, stamp);
  }
  if (a_.finished && b_.finished) over_ = true;
}

// The holes are given up first, so that a FIN behind one of them is reported as well.
void TcpFlows::Flow::finish(const Stamp& stamp) {
  if (!reader_->indifferent()) {
    give_up_all(stamp);
    check_finished(stamp);
    if (reset_) report_reset(*reset_, stamp);
  }
  reader_->on_end(stamp);
}

}  // namespace weft::capture
