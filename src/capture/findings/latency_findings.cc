#include "capture/findings/latency_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "capture/text/units.h"

namespace weft::capture {
namespace {

// Linux delays by 40 ms at least, in ticks of 1 to 4 ms.
constexpr std::int64_t delayed_from_ns = 38'000'000;
constexpr std::int64_t delayed_to_ns = 48'000'000;
// A sender that held data back sends it at once. On the way to the capture this may take a moment.
constexpr std::int64_t at_once_ns = 1'000'000;
// A receiver first wakes its program.
constexpr std::int64_t soon_ns = 5'000'000;
// Later acknowledgements than this are compared with the delayed ones.
constexpr std::int64_t late_ns = 10'000'000;
// Fewer waits may be chance.
constexpr std::uint64_t few_waits = 5;
constexpr std::uint64_t few_taken_late = 20;
// The waits of a receiver are made by a timer if most of them take the same time.
constexpr std::uint64_t plateau_percent = 67;

// Linux retransmits after 200 ms at the earliest (TCP_RTO_MIN); RFC 6298 §2.4 asks for a second.
constexpr std::int64_t timer_from_ns = 195'000'000;
// Larger intervals are those of keep-alives.
constexpr std::int64_t timer_to_ns = 60'000'000'000;

// What counts as far from the others of a kind.
constexpr std::uint64_t enough_answers = 100;
constexpr std::int64_t far_factor = 1'000;
constexpr std::int64_t far_from_ns = 10'000'000;
// RFC 1122 §4.2.3.2 allows TCP to delay an acknowledgement by half a second.
constexpr std::int64_t far_acknowledgement_ns = 500'000'000;

bool is_delayed(std::int64_t ns) {
  return ns >= delayed_from_ns && ns <= delayed_to_ns;
}

std::uint64_t percent_of(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : std::min<std::uint64_t>(part * 100 / all, 100);
}

// Returns the share of the time between the first and the last frame of the connection.
std::uint64_t time_share(std::int64_t part_ns, const Connection& connection) {
  const std::int64_t all_ns = connection.last.time_ns - connection.first.time_ns;
  return percent_of(static_cast<std::uint64_t>(std::max<std::int64_t>(part_ns, 0)),
                    static_cast<std::uint64_t>(std::max<std::int64_t>(all_ns, 0)));
}

}  // namespace

void LatencyFindings::Waits::add(const Stamp& begin, const Stamp& end) {
  ++count;
  total_ns += end.time_ns - begin.time_ns;
  // Further waits are counted without their frames, so that a finding stays small.
  if (stamps.size() + 2 > max_frames) return;
  if (stamps.empty() || stamps.back().frame < begin.frame) stamps.push_back(begin);
  if (stamps.back().frame < end.frame) stamps.push_back(end);
}

// Each power of two has four buckets. Values below 8 share the first ones.
void LatencyFindings::Latencies::add(std::int64_t latency_ns) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(latency_ns, 8));
  const auto width = static_cast<std::size_t>(std::bit_width(value));
  const std::size_t bucket = width * 4 + (value >> (width - 3)) % 4;
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++count_;
  std::uint32_t& counted = buckets_[bucket];
  if (counted < std::numeric_limits<std::uint32_t>::max()) ++counted;
}

std::int64_t LatencyFindings::Latencies::median_ns() const {
  std::uint64_t below = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    below += buckets_[bucket];
    if (below * 2 < count_ || below == 0) continue;
    // The middle of the bucket: its first three bits, and half of the fourth one.
    const std::size_t width = bucket / 4;
    return static_cast<std::int64_t>((2 * (4 + bucket % 4) + 1) << (width - 3)) / 2;
  }
  return 0;
}

bool LatencyFindings::Answers::add(std::int64_t latency_ns, const Stamp& request,
                                   const Stamp& answer) {
  latency.add(latency_ns);
  if (latency_ns <= slowest_ns) return false;
  slowest_ns = latency_ns;
  slowest_request = request;
  slowest_answer = answer;
  return true;
}

bool LatencyFindings::Answers::is_far(std::int64_t at_least_ns) const {
  return latency.count() >= enough_answers && slowest_ns >= at_least_ns &&
         slowest_ns / far_factor >= std::max<std::int64_t>(latency.median_ns(), 1);
}

std::string LatencyFindings::Answers::text(const char* exchange) const {
  const std::int64_t median_ns = latency.median_ns();
  return fmt::format("after {}, which is about {} times the median of {} such {} ({})",
                     duration_text(slowest_ns), slowest_ns / std::max<std::int64_t>(median_ns, 1),
                     latency.count(), exchange, duration_text(median_ns));
}

// A responder need not acknowledge a request at once unless the requester asks for it, and the
// capture of a request that was sent again shows only its last acknowledgement. So an
// acknowledgement counts if its message was the last one of the requester, and was sent once.
void LatencyFindings::add_acknowledgement(Half& own, const Operation& operation) {
  if (!operation.confirmed || operation.not_ready > 0) return;
  const std::int64_t end_ns = operation.end.time_ns;
  if (own.last_sent_ns.value_or(end_ns) > end_ns) return;
  if (own.last_repeat_ns && *own.last_repeat_ns >= operation.start.time_ns) return;
  own.answers[operation.kind].add(operation.confirmation.time_ns - end_ns, operation.end,
                                  operation.confirmation);
}

// Calls that were sent again have a finding of their own.
void LatencyFindings::on_rpc(const Rpc& rpc) {
  if (!rpc.call || !rpc.reply || !rpc.has_header || rpc.retransmissions > 0) return;
  const std::string name = describe(rpc);
  auto& procedures = half(rpc.connection, rpc.caller).procedures;
  auto known = procedures.find(name);
  if (known == procedures.end()) {
    if (procedures_ >= max_procedures) return;
    ++procedures_;
    known = procedures.emplace(name, Answers{}).first;
  }
  if (known->second.add(rpc.latency_ns, rpc.call->first, rpc.reply->first)) {
    known->second.slowest_xid = rpc.xid;
  }
}

void LatencyFindings::on_operation(const Operation& operation) {
  Half& own = half(operation.connection, operation.side);
  const std::int64_t latency_ns = operation.latency_ns();
  if (operation.is_request()) {
    if (latency_ns < 0) return;
    own.answers[operation.kind].add(latency_ns, operation.start, operation.end);
    return;
  }
  ++own.messages;
  add_acknowledgement(own, operation);
  if (connections_[operation.connection].transport != Transport::iwarp || !operation.confirmed) {
    return;
  }
  const std::int64_t waited_ns = operation.confirmation.time_ns - operation.end.time_ns;
  if (waited_ns >= late_ns) own.late = {operation.end, operation.confirmation};
}

// New data directly after a late acknowledgement had waited for it. Data in the frame of the
// acknowledgement is an answer that took long.
void LatencyFindings::on_progress(const Origin& origin, std::uint64_t /*bytes*/) {
  Half& own = half(origin.connection, origin.side);
  Half& peer = half(origin.connection, other(origin.side));
  own.last_sent_ns = origin.stamp.time_ns;
  for (Half* sender : {&own, &peer}) {
    if (!sender->late || origin.stamp.frame <= sender->late->second.frame) continue;
    const auto [begin, end] = *sender->late;
    const std::int64_t after_ns = origin.stamp.time_ns - end.time_ns;
    const bool delayed = is_delayed(end.time_ns - begin.time_ns);
    sender->late.reset();
    if (sender == &own) {
      if (delayed && after_ns <= at_once_ns) own.delayed.add(begin, end);
    } else if (after_ns <= soon_ns) {
      ++peer.slow;
      if (delayed) peer.taken_late.add(begin, end);
    }
  }
}

// A single byte probes whether the other side is still there.
void LatencyFindings::on_repeat(const Origin& origin, std::uint64_t wire_bytes) {
  Half& own = half(origin.connection, origin.side);
  own.last_repeat_ns = origin.stamp.time_ns;
  if (connections_[origin.connection].transport != Transport::iwarp || wire_bytes <= 1) return;
  const std::int64_t now_ns = origin.stamp.time_ns;
  const std::int64_t silent_ns = own.last_sent_ns ? now_ns - *own.last_sent_ns : 0;
  if (silent_ns >= timer_from_ns && silent_ns <= timer_to_ns) {
    Stamp begin = origin.stamp;
    begin.time_ns -= silent_ns;
    own.timers.add(begin, origin.stamp);
  }
  own.last_sent_ns = std::max(own.last_sent_ns.value_or(now_ns), now_ns);
}

void LatencyFindings::on_close(ConnectionId connection) {
  const auto* pair = pairs_.find(connection);
  if (pair == nullptr) return;
  report(connections_[connection], Side::a, (*pair)[0]);
  report(connections_[connection], Side::b, (*pair)[1]);
}

void LatencyFindings::on_forget(ConnectionId connection) {
  if (const auto* pair = pairs_.find(connection)) {
    for (const Half& one : *pair) procedures_ -= one.procedures.size();
  }
  pairs_.erase(connection);
}

void LatencyFindings::finish() {
  for (const Connection& connection : connections_) on_close(connection.id);
  pairs_.clear();
}

void LatencyFindings::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  for (const Connection& connection : connections_) on_close(connection.id);
  sink_ = own;
}

void LatencyFindings::report_delayed(const Connection& connection, Side side, const Half& half) {
  const std::string name = endpoint_text(connection, side);
  const std::string receiver = endpoint_text(connection, other(side));
  const Waits& delayed = half.delayed;
  if (delayed.count >= few_waits) {
    sink_->on_finding(
        {finding::delayed_acknowledgement, connection.id,
         fmt::format("{} waited {} times for a delayed acknowledgement, after {} % of its messages "
                     "and for {} in all, which is {} % of the connection's time: it held back "
                     "short segments until everything before them was acknowledged (Nagle), and {} "
                     "delays that by 40 ms. TCP_NODELAY at the sender cures it.",
                     name, delayed.count, percent_of(delayed.count, half.messages),
                     duration_text(delayed.total_ns), time_share(delayed.total_ns, connection),
                     receiver),
         delayed.stamps});
  }
  const Waits& late = half.taken_late;
  if (late.count >= few_taken_late && percent_of(late.count, half.slow) >= plateau_percent) {
    sink_->on_finding(
        {finding::delayed_acknowledgement, connection.id,
         fmt::format("{} acknowledged messages of {} after about 40 ms, {} times, which is {} % of "
                     "them, and went on only then: {} in all, {} % of the connection's time. That "
                     "is the time of TCP's delayed acknowledgement, and of its probe for a lost "
                     "segment. The messages were in the capture before, so what holds them back is "
                     "{} or its network interface.",
                     receiver, name, late.count, percent_of(late.count, half.messages),
                     duration_text(late.total_ns), time_share(late.total_ns, connection), receiver),
         late.stamps});
  }
}

void LatencyFindings::report(const Connection& connection, Side side, const Half& half) {
  const std::string name = endpoint_text(connection, side);
  report_delayed(connection, side, half);
  const Waits& timers = half.timers;
  if (timers.count > 0) {
    sink_->on_finding(
        {finding::retransmission_timer, connection.id,
         fmt::format(
             "{} was silent until its retransmission timer expired, {}, for {} in all, "
             "which is {} % of the connection's time: the last segments before a pause, or "
             "their acknowledgement, were lost or late. Look for drops on the path; a lower "
             "rto_min of the route (`ip route`) makes the wait shorter.",
             name, times_text(timers.count), duration_text(timers.total_ns),
             time_share(timers.total_ns, connection)),
         timers.stamps});
  }
  report_answers(connection, side, half);
  report_replies(connection, side, half);
}

void LatencyFindings::report_answers(const Connection& connection, Side side, const Half& half) {
  const bool tcp = connection.transport == Transport::iwarp;
  for (const auto& [kind, answers] : half.answers) {
    Operation any;
    any.kind = kind;
    const bool request = any.is_request();
    if (!answers.is_far(request || !tcp ? far_from_ns : far_acknowledgement_ns)) continue;
    sink_->on_finding(
        {request ? finding::slow_answer : finding::slow_acknowledgement,
         connection.id,
         fmt::format("One {} of {} was {} {}.", to_string(kind), endpoint_text(connection, side),
                     request ? "answered" : "acknowledged",
                     answers.text(request ? "requests" : "messages")),
         {answers.slowest_request, answers.slowest_answer}});
  }
}

void LatencyFindings::report_replies(const Connection& connection, Side side, const Half& half) {
  for (const auto& [name, answers] : half.procedures) {
    if (!answers.is_far(far_from_ns)) continue;
    sink_->on_finding({finding::slow_reply,
                       connection.id,
                       fmt::format("One {} of {} was answered {}.", name,
                                   endpoint_text(connection, side), answers.text("calls")),
                       {answers.slowest_request, answers.slowest_answer},
                       answers.slowest_xid});
  }
}

}  // namespace weft::capture
