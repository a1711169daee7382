#include "capture/findings/stall_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/text/units.h"
#include "wire/ib_transport.h"

namespace weft::capture {
namespace {

// Requests of which the answer takes this long are rare even where disks are slow, and the
// transports repeat theirs sooner.
constexpr std::int64_t silence_ns = 1'000'000'000;
// A requester gives up after 1 to 7 retries (retry_cnt). One may be a loss that the capture ends
// with.
constexpr std::uint64_t few_rounds = 2;
// A shorter wait is that of a receiver which is about to read.
constexpr std::int64_t short_window_ns = 1'000'000;

}  // namespace

void StallFindings::Tally::add(const Stamp& begin, const Stamp& end) {
  const std::int64_t took_ns = end.time_ns - begin.time_ns;
  ++count;
  total_ns += took_ns;
  longest_ns = std::max(longest_ns, took_ns);
  if (stamps.size() + 2 > max_frames) return;
  if (stamps.empty() || stamps.back().frame < begin.frame) stamps.push_back(begin);
  if (stamps.back().frame < end.frame) stamps.push_back(end);
}

// Events come in the order of the sender, which need not be that of the capture.
void StallFindings::note(Pair& pair, const Stamp& stamp) {
  if (pair.last && stamp.frame <= pair.last->frame) return;
  if (pair.last && stamp.time_ns - pair.last->time_ns >= silence_ns) {
    pair.silence = {*pair.last, stamp};
  }
  pair.last = stamp;
}

StallFindings::Pair& StallFindings::note(const Origin& origin) {
  Pair& pair = pairs_.get(origin.connection);
  note(pair, origin.stamp);
  return pair;
}

void StallFindings::note_answer(const Origin& origin) {
  note(origin).halves[origin.side == Side::a ? 1 : 0].retries = {};
}

void StallFindings::on_progress(const Origin& origin, std::uint64_t /*bytes*/) {
  note_answer(origin);
}
void StallFindings::on_acknowledge(const Origin& origin, std::uint32_t /*psn*/) {
  note_answer(origin);
}
void StallFindings::on_atomic_answer(const Origin& origin, const AtomicAnswer& /*answer*/) {
  note_answer(origin);
}
void StallFindings::on_received(const Origin& origin, std::uint64_t /*position*/) {
  note_answer(origin);
}
void StallFindings::on_refusal(const Origin& origin, const Refusal& /*refusal*/) {
  note_answer(origin);
}

void StallFindings::on_end(const Origin& origin, bool /*reset*/) {
  note(origin);
}

// A round repeats everything that is not acknowledged, so it begins with the packet of the first
// one again (InfiniBand §9.7.5.1.1). Responders repeat answers too, each after a request, which
// ends their series here.
void StallFindings::on_repeat(const Origin& origin, std::uint64_t /*wire_bytes*/) {
  note_answer(origin);
  Retries& retries = pairs_.get(origin.connection).halves[origin.side == Side::a ? 0 : 1].retries;
  const auto psn = [](std::uint64_t position) { return static_cast<std::uint32_t>(position); };
  if (retries.rounds > 0 &&
      wire::psn_distance(psn(retries.first_position), psn(origin.position)) > 0) {
    return;
  }
  retries.first_position = origin.position;
  ++retries.rounds;
  if (retries.stamps.size() < max_frames) retries.stamps.push_back(origin.stamp);
}

void StallFindings::on_window(const Origin& origin, bool open) {
  Half& half = note(origin).halves[origin.side == Side::a ? 0 : 1];
  if (!open) {
    if (!half.window_closed) half.window_closed = origin.stamp;
    return;
  }
  if (!half.window_closed) return;
  if (origin.stamp.time_ns - half.window_closed->time_ns >= short_window_ns) {
    half.closed_windows.add(*half.window_closed, origin.stamp);
  }
  half.window_closed.reset();
}

void StallFindings::on_window_probe(const Origin& origin) {
  ++note(origin).halves[origin.side == Side::a ? 1 : 0].probes;
}

// A silence while a Send or Write was outstanding counts if it ended with the acknowledgement:
// after anything else, the requester may not have asked for one before. The event that ends an
// operation may come here before it comes as an event.
void StallFindings::on_operation(const Operation& operation) {
  if (operation.latency_ns() < 0) return;
  Pair& pair = pairs_.get(operation.connection);
  const Stamp& answer = operation.is_request() ? operation.end : operation.confirmation;
  note(pair, answer);
  if (!pair.silence) return;
  const auto [begin, end] = *pair.silence;
  if (operation.start.frame > begin.frame || answer.frame < end.frame) return;
  if (!operation.is_request() && answer.frame != end.frame) return;
  pair.silence.reset();
  pair.halves[operation.side == Side::a ? 0 : 1].silences.add(begin, end);
}

void StallFindings::on_close(ConnectionId connection) {
  Pair* const pair = pairs_.find(connection);
  if (pair == nullptr) return;
  report(connections_[connection], Side::a, pair->halves[0]);
  report(connections_[connection], Side::b, pair->halves[1]);
}

void StallFindings::finish() {
  for (const Connection& connection : connections_) on_close(connection.id);
  pairs_.clear();
}

void StallFindings::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  for (const Connection& connection : connections_) on_close(connection.id);
  sink_ = own;
}

void StallFindings::report(const Connection& connection, Side side, const Half& half) {
  const std::string name = endpoint_text(connection, side);
  const std::string peer = endpoint_text(connection, other(side));
  if (const Tally& silences = half.silences; silences.count > 0) {
    sink_->on_finding(
        {finding::silence, connection.id,
         fmt::format("Nothing new came from either side, {}, for {} in all and {} at most, "
                     "while {} waited for an answer or acknowledgement of {}.",
                     times_text(silences.count), duration_text(silences.total_ns),
                     duration_text(silences.longest_ns), name, peer),
         silences.stamps});
  }
  Tally closed = half.closed_windows;
  if (half.window_closed &&
      connection.last.time_ns - half.window_closed->time_ns >= short_window_ns) {
    closed.add(*half.window_closed, connection.last);
  }
  if (closed.count > 0) {
    sink_->on_finding(
        {finding::zero_window, connection.id,
         fmt::format("{} closed its TCP window {}, for {} in all and {} at most: it "
                     "did not read what it had received, and {} {}.",
                     name, times_text(closed.count), duration_text(closed.total_ns),
                     duration_text(closed.longest_ns), peer,
                     half.probes == 0 ? "could not send"
                                      : "sent " + count_text(half.probes, "persist probe")),
         closed.stamps});
  }
  report_retries(connection, side, half.retries);
}

// Only reliable connections of InfiniBand retry.
void StallFindings::report_retries(const Connection& connection, Side side,
                                   const Retries& retries) {
  const bool reliable =
      connection.transport == Transport::rc || connection.transport == Transport::xrc;
  if (!reliable || retries.rounds < few_rounds) return;
  sink_->on_finding(
      {finding::retries_exhausted, connection.id,
       fmt::format("{} sent the same request {} more times, and {} did not answer any of them. "
                   "After its last retry a queue pair fails (IBV_WC_RETRY_EXC_ERR).",
                   endpoint_text(connection, side), retries.rounds,
                   endpoint_text(connection, other(side))),
       retries.stamps});
}

}  // namespace weft::capture
