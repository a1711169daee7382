#include "weft/capture/traffic_findings.hpp"
#include "weft/capture/management.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/findings/open_end.h"
#include "capture/findings/table_summary.h"
#include "capture/text/units.h"
#include "wire/ib_transport.h"

namespace weft::capture {
namespace {

// Describes the first violation of a kind; the finding counts the others.
std::string violation_text(Violation::Kind kind, const Violation& first) {
  switch (kind) {
    case Violation::Kind::bad_checksum:
      return fmt::format("a wrong checksum ({:#010x} where {:#010x} fits)", first.found,
                         first.expected);
    case Violation::Kind::bad_marker:
      return "a marker that does not point to the start of its FPDU";
    case Violation::Kind::bad_version:
      return fmt::format("protocol version {}", first.found);
    case Violation::Kind::bad_header:
      return "an impossible header";
    case Violation::Kind::unexpected_message:
      return fmt::format("message number {} instead of {}", first.found, first.expected);
    case Violation::Kind::unexpected_offset:
      return fmt::format("message offset {} instead of {}", first.found, first.expected);
    case Violation::Kind::answer_without_request:
      return fmt::format("an answer without a request (to {:#010x})", first.found);
    case Violation::Kind::answer_beyond_request:
      return fmt::format("an answer of {} to a request for {}", count_text(first.found, "byte"),
                         first.expected);
    case Violation::Kind::wrong_length:
      return fmt::format("a length of {} instead of {}", count_text(first.found, "byte"),
                         first.expected);
  }
  return "something wrong";
}

// Returns ", which cost 3.00 ms"; empty if it cost nothing.
std::string cost_text(std::int64_t cost_ns) {
  return cost_ns > 0 ? fmt::format(", which cost {}", duration_text(cost_ns)) : std::string();
}

// Returns "3 packets from HOST met congestion, and it sent 1 notification of it", or only the one
// that is not 0.
std::string congestion_text(const std::string& name, std::uint64_t marked, std::uint64_t notified) {
  const std::string notifications = count_text(notified, "congestion notification");
  if (marked == 0) return fmt::format("{} sent {}.", name, notifications);
  return fmt::format("{} from {} met congestion{}.", count_text(marked, "packet"), name,
                     notified > 0 ? fmt::format(", and it sent {}", notifications) : "");
}

// The reason of InfiniBand's REJ; MPA has none.
std::string reason_text(const Connection& connection) {
  if (connection.reject_reason == 0) return {};
  return ": " + reject_reason_text(connection.reject_reason);
}

}  // namespace

TrafficFindings::Half& TrafficFindings::half(ConnectionId connection, Side side) {
  Pair& pair = pairs_.get(connection);
  return side == Side::a ? pair.a : pair.b;
}

std::string TrafficFindings::endpoint_name(ConnectionId connection, Side side) const {
  return endpoint_text(connections_[connection], side);
}

void TrafficFindings::report(std::string_view kind, ConnectionId connection,
                             const std::vector<Stamp>& stamps, std::string sentence) {
  sink_->on_finding({kind, connection, std::move(sentence), stamps});
}

// --- Reported at once ----------------------------------------------------------------------------

// Sequence errors and RNR NAKs are part of normal recovery, so they are only collected. Every other
// refusal ends the connection and is reported at once.
void TrafficFindings::on_refusal(const Origin& origin, const Refusal& refusal) {
  Half& own = half(origin.connection, origin.side);
  if (refusal.kind == Refusal::Kind::sequence_error) return own.sequence_errors.add(origin.stamp);
  if (refusal.kind == Refusal::Kind::receiver_not_ready) {
    Train& train = own.train;
    if (train.naks.count > 0 && train.psn != refusal.psn) {
      end_train(origin.connection, origin.side, train, nullptr);
    }
    if (train.naks.count == 0) train.begin = origin.stamp;
    train.psn = refusal.psn;
    train.last = origin.stamp;
    return train.naks.add(origin.stamp, refusal.timer_ns);
  }
  Finding finding{finding::refused,
                  origin.connection,
                  fmt::format("{} refused: {}.", endpoint_name(origin.connection, origin.side),
                              refusal_text(refusal)),
                  {origin.stamp}};
  if (refusal.has_key) finding.keys.push_back(refusal.key);
  sink_->on_finding(finding);
}

// An acknowledgement of the packet, or of a later one, ends the series of RNR NAKs.
void TrafficFindings::on_acknowledge(const Origin& origin, std::uint32_t psn) {
  Pair* const pair = pairs_.find(origin.connection);
  if (pair == nullptr) return;
  Train& train = (origin.side == Side::a ? pair->a : pair->b).train;
  if (train.naks.count == 0 || wire::psn_distance(train.psn, psn) < 0) return;
  end_train(origin.connection, origin.side, train, &origin.stamp);
}

// Reports a series of RNR NAKs as one finding. `acknowledged` is nullptr if the packet was never
// accepted.
void TrafficFindings::end_train(ConnectionId connection, Side side, Train& train,
                                const Stamp* acknowledged) {
  const std::string wait = duration_text(static_cast<std::int64_t>(train.naks.amount));
  const std::string end =
      acknowledged ? cost_text(acknowledged->time_ns - train.begin.time_ns)
                   : fmt::format(", and did not become ready in {}",
                                 duration_text(train.last.time_ns - train.begin.time_ns));
  report(finding::not_ready, connection, train.naks.stamps,
         fmt::format("{} was not ready to receive: it answered {} (timers of {} in all){}.",
                     endpoint_name(connection, side), count_text(train.naks.count, "RNR NAK"), wait,
                     end));
  train = {};
}

// --- Collected -----------------------------------------------------------------------------------

void TrafficFindings::on_repeat(const Origin& origin, std::uint64_t wire_bytes) {
  Half& own = half(origin.connection, origin.side);
  own.repeats.add(origin.stamp, wire_bytes);
  own.repeating.repeat(origin.stamp.time_ns);
}

void TrafficFindings::on_gap(const Origin& origin, const Gap& gap) {
  Half& own = half(origin.connection, origin.side);
  if (gap.cut) {
    own.cut = true;
    return;
  }
  lacks_packets_ = true;
  // In a connection that was open before the capture, what is before the first message is the rest
  // of one that began before the capture.
  const Connection* const connection = connections_.find(origin.connection);
  const bool open_before =
      connection != nullptr && connection->beginning == Connection::Beginning::traffic;
  if (open_before && !own.seen) return;
  own.gaps.add(origin.stamp, gap.wire_bytes);
  own.gap_packets += gap.packets;
}

void TrafficFindings::on_violation(const Origin& origin, const Violation& violation) {
  Half& own = half(origin.connection, origin.side);
  const auto kind = static_cast<std::size_t>(violation.kind);
  if (own.violations[kind].count == 0) own.first_violation[kind] = violation;
  own.violations[kind].add(origin.stamp);
}

void TrafficFindings::on_congestion(const Origin& origin, Congestion congestion) {
  Half& own = half(origin.connection, origin.side);
  (congestion == Congestion::marked ? own.marked : own.notified).add(origin.stamp);
  if (congestion == Congestion::notified) {
    half(origin.connection, other(origin.side)).rate.tell(origin.stamp.time_ns);
  }
}

void TrafficFindings::Rate::add(std::int64_t time_ns, std::uint64_t more) {
  if (more == 0) return;
  if (bytes == 0) first_ns = time_ns;
  bytes += more;
  last_ns = std::max(last_ns, time_ns);
}

// Only the first notification divides the traffic.
void TrafficFindings::Rate::tell(std::int64_t time_ns) {
  if (told) return;
  told = true;
  told_ns = time_ns;
  told_bytes = bytes;
}

// Returns how the rate of a side changed when the other side asked it to slow down; empty if there
// is too little traffic for two rates.
std::string TrafficFindings::slowing_text(ConnectionId connection, Side side) const {
  const Pair* const pair = pairs_.find(connection);
  if (pair == nullptr) return {};
  const Rate& rate = (side == Side::a ? pair->a : pair->b).rate;
  const std::int64_t before_ns = rate.told_ns - rate.first_ns;
  const std::int64_t after_ns = rate.last_ns - rate.told_ns;
  if (!rate.told || rate.told_bytes == 0 || before_ns <= 0 || after_ns <= 0) return {};
  const auto per_second = [](std::uint64_t bytes, std::int64_t time_ns) {
    constexpr double second_ns = 1e9;
    const double amount = static_cast<double>(bytes) * second_ns / static_cast<double>(time_ns);
    return bytes_text(static_cast<std::uint64_t>(amount)) + "/s";
  };
  return fmt::format(" {} sent {} before the first one, and {} after it.",
                     endpoint_name(connection, side), per_second(rate.told_bytes, before_ns),
                     per_second(rate.bytes - rate.told_bytes, after_ns));
}

// A Read or atomic without response is known only when its operation ends.
void TrafficFindings::on_operation(const Operation& operation) {
  if (!operation.is_request()) return;
  Half& own = half(operation.connection, operation.side);
  if (operation.outcome != Operation::Outcome::unanswered) {
    own.open = {};
    return;
  }
  // The answer may be one of which the snap length cut the header.
  if (half(operation.connection, other(operation.side)).cut) return;
  const bool reads = operation.kind == Operation::Kind::read;
  for (Tally* const tally : {&own.unanswered, &own.open}) {
    tally->add(operation.start, reads ? operation.requested_bytes : sizeof(std::uint64_t));
  }
}

// --- Reported at the end -------------------------------------------------------------------------

void TrafficFindings::finish() {
  TableSummary summary(connections_);
  for (const Connection& connection : connections_) report_all(connection, summary);
  pairs_.clear();
}

void TrafficFindings::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  TableSummary summary(connections_);
  for (const Connection& connection : connections_) {
    if (const Pair* pair = pairs_.find(connection.id)) {
      report_half(connection.id, Side::a, pair->a, summary);
      report_half(connection.id, Side::b, pair->b, summary);
    }
    report_connection(connection, summary);
  }
  sink_ = own;
}

// Connections are closed many at a time, so the summary serves several of them.
void TrafficFindings::on_close(ConnectionId connection) {
  constexpr std::size_t closed_at_once = 256;
  if (closed_++ % closed_at_once == 0) closing_ = std::make_shared<TableSummary>(connections_);
  report_all(connections_[connection], *closing_);
}

void TrafficFindings::report_all(const Connection& connection, TableSummary& summary) {
  if (Pair* pair = pairs_.find(connection.id)) {
    for (const Side side : {Side::a, Side::b}) {
      Train& train = half(connection.id, side).train;
      if (train.naks.count > 0) end_train(connection.id, side, train, nullptr);
    }
    report_half(connection.id, Side::a, pair->a, summary);
    report_half(connection.id, Side::b, pair->b, summary);
  }
  report_connection(connection, summary);
}

// TCP repeats a byte to probe an idle connection (RFC 9293 §3.8.4), and its last segment to probe
// for a loss (RFC 8985 §7): neither shows that anything was lost.
void TrafficFindings::report_repeats(ConnectionId connection, const std::string& name,
                                     const Half& half) {
  const Tally& repeats = half.repeats;
  const bool probes = connections_[connection].transport == Transport::iwarp &&
                      (repeats.count == 1 || repeats.amount <= repeats.count);
  const std::string cost = cost_text(static_cast<std::int64_t>(half.repeating.lost_ns()));
  Finding finding{finding::repeated, connection,
                  fmt::format("{} sent {}{}.", name, again_text(repeats.count, repeats.amount),
                              cost.empty() ? cost : cost + " at most"),
                  repeats.stamps};
  if (probes) finding.severity = Severity::note;
  sink_->on_finding(finding);
}

// Requests at the end of the capture, after which nothing was answered, may be answered later. An
// empty Read asks only whether everything before it has arrived. A side that closes does not answer
// it.
void TrafficFindings::report_unanswered(const Connection& connection, const std::string& name,
                                        const Half& half, TableSummary& summary) {
  std::uint64_t count = half.unanswered.count;
  std::vector<Stamp> stamps = half.unanswered.stamps;
  if (half.open.count > 0 && connection.end == Connection::End::open) {
    const Stamp& first = half.open.stamps.front();
    if (may_be_answered_later(first.time_ns, summary.last_ns())) {
      count -= half.open.count;
      std::erase_if(stamps, [&](const Stamp& stamp) { return stamp.frame >= first.frame; });
    }
  }
  if (count == 0) return;
  Finding finding{finding::unanswered_request, connection.id,
                  fmt::format("{} of {} had no answer.", count_text(count, "Read or atomic"), name),
                  std::move(stamps)};
  if (half.unanswered.amount == 0) finding.severity = Severity::note;
  sink_->on_finding(finding);
}

// Reports one finding for each kind of trouble that one side had.
void TrafficFindings::report_half(ConnectionId connection, Side side, const Half& half,
                                  TableSummary& summary) {
  const std::string name = endpoint_name(connection, side);
  if (half.repeats.count > 0) {
    report_repeats(connection, name, half);
  }
  // On InfiniBand a packet with a cut header is missing in its connection.
  const bool only_cut = half.cut && connections_[connection].transport != Transport::iwarp;
  if (half.gaps.count > 0 && !only_cut) {
    report(finding::not_captured, connection, half.gaps.stamps,
           fmt::format("Of the traffic from {}, {} {} not in the capture, or cannot be decoded "
                       "because of that.",
                       name, amount_text(half.gap_packets, half.gaps.amount),
                       half.gap_packets == 1 && half.gaps.amount == 0 ? "is" : "are"));
  }
  if (half.sequence_errors.count > 0) {
    report(finding::sequence_error, connection, half.sequence_errors.stamps,
           fmt::format("{} missed packets, and requested them again {}.", name,
                       times_text(half.sequence_errors.count)));
  }
  report_unanswered(connections_[connection], name, half, summary);
  if (half.marked.count + half.notified.count > 0) {
    report(finding::congestion, connection,
           half.marked.count > 0 ? half.marked.stamps : half.notified.stamps,
           congestion_text(name, half.marked.count, half.notified.count) +
               (half.notified.count > 0 ? slowing_text(connection, other(side)) : ""));
  }
  for (std::size_t kind = 0; kind < violation_kinds; ++kind) {
    const Tally& tally = half.violations[kind];
    if (tally.count == 0) continue;
    report(
        finding::violations[kind], connection, tally.stamps,
        fmt::format("{} sent {}, {}.", name,
                    violation_text(static_cast<Violation::Kind>(kind), half.first_violation[kind]),
                    times_text(tally.count)));
  }
}

// Reports an unusual begin or end of the connection. Normal ends are not findings.
void TrafficFindings::report_connection(const Connection& connection, TableSummary& summary) {
  const auto both = [&] {
    return fmt::format("{} and {}", endpoint_name(connection.id, Side::a),
                       endpoint_name(connection.id, Side::b));
  };
  const std::vector<Stamp> last{connection.last};
  const Side silent = connection.side_frames[0] == 0 ? Side::a : Side::b;
  if (lacks_direction(connection) && !half(connection.id, silent).cut) {
    const std::string name = endpoint_name(connection.id, silent);
    report(finding::one_direction, connection.id, {connection.first},
           summary.may_have_packets(connection, silent)
               ? fmt::format("The capture does not show which packets are from {}, so nothing is "
                             "known about its answers.",
                             name)
               : fmt::format(
                     "The capture has no packet from {}, so nothing is known about its answers.",
                     name));
  }
  switch (connection.end) {
    case Connection::End::reset:
      return report(finding::reset, connection.id, last,
                    fmt::format("The connection of {} was reset.", both()));
    case Connection::End::half_open:
      return report(finding::half_open, connection.id, last,
                    fmt::format("Only one of {} closed the connection.", both()));
    case Connection::End::rejected:
      if (summary.is_attempt_of_device(connection)) return;
      return report(finding::rejected_connection, connection.id, last,
                    fmt::format("{} rejected the connection that {} requested{}.",
                                endpoint_name(connection.id, Side::b),
                                endpoint_name(connection.id, Side::a), reason_text(connection)));
    case Connection::End::unanswered:
      if (summary.lacks_replies(connection)) return;
      if (summary.lacks_repeats(connection)) return;
      // The answer to a single message may be among what the capture has lost elsewhere.
      if (lacks_packets_ && connection.frames == 1) return;
      return report(finding::unanswered_connection, connection.id, last,
                    fmt::format("{} requested a connection, and {} never answered.",
                                endpoint_name(connection.id, Side::a),
                                endpoint_name(connection.id, Side::b)));
    default:
      return;
  }
}

}  // namespace weft::capture
