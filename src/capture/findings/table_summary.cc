#include "capture/findings/table_summary.h"

#include <algorithm>

#include "wire/hello.h"

namespace weft::capture {
namespace {

std::pair<std::uint32_t, std::uint32_t> queue_pairs_of(const wire::Hello& hello) {
  return std::minmax<std::uint32_t>({hello.source_qpn, hello.destination_qpn});
}

}  // namespace

void TableSummary::collect() {
  if (std::exchange(collected_, true)) return;
  for (const Connection& one : connections_) {
    last_ns_ = std::max(last_ns_, one.last.time_ns);
    add_device(one);
    if (lacks_direction(one)) {
      const Side silent = one.side_frames[0] == 0 ? Side::a : Side::b;
      auto& frame = silent_[{one.endpoint(silent).address, one.endpoint(other(silent)).address}];
      frame = std::max(frame, one.first.frame);
    }
    if (has_unknown_sender(one)) ++unknown_senders_[senders_of(one)];
  }
}

void TableSummary::add_device(const Connection& connection) {
  if (connection.end == Connection::End::rejected) return;
  const auto request = wire::Hello::parse(connection.offer_a.private_data);
  const auto reply = wire::Hello::parse(connection.offer_b.private_data);
  if (!request || !reply || reply->answer != wire::HelloAnswer::accepted) return;
  devices_.insert(queue_pairs_of(*request));
}

bool TableSummary::has_unknown_sender(const Connection& connection) {
  const auto& frames = connection.side_frames;
  if ((frames[0] > 0) == (frames[1] > 0)) return false;
  return !connection.endpoint(frames[0] > 0 ? Side::a : Side::b).known;
}

TableSummary::Senders TableSummary::senders_of(const Connection& connection) {
  const Side sender = connection.side_frames[0] > 0 ? Side::a : Side::b;
  return {connection.transport, connection.endpoint(sender).address,
          connection.endpoint(other(sender)).address};
}

std::int64_t TableSummary::last_ns() {
  collect();
  return last_ns_;
}

bool TableSummary::lacks_replies(const Connection& requested) {
  collect();
  const auto found = silent_.find({requested.b.address, requested.a.address});
  return found != silent_.end() && found->second >= requested.first.frame;
}

bool TableSummary::lacks_repeats(const Connection& requested) {
  if (requested.answer_within_ns == 0 || requested.frames > 1) return false;
  // A tenth for timers that are late.
  return last_ns() >
         requested.last.time_ns + requested.answer_within_ns + requested.answer_within_ns / 10;
}

bool TableSummary::may_have_packets(const Connection& connection, Side silent) {
  if (connection.transport == Transport::iwarp) return false;
  collect();
  const Senders wanted{connection.transport, connection.endpoint(silent).address,
                       connection.endpoint(other(silent)).address};
  const auto found = unknown_senders_.find(wanted);
  if (found == unknown_senders_.end()) return false;
  const bool is_itself = has_unknown_sender(connection) && senders_of(connection) == wanted;
  return found->second > (is_itself ? 1 : 0);
}

bool TableSummary::is_attempt_of_device(const Connection& rejected) {
  using wire::Hello;
  using wire::HelloAnswer;
  const auto reply = Hello::parse(rejected.offer_b.private_data);
  if (!reply) return false;
  if (reply->answer == HelloAnswer::crossed || reply->answer == HelloAnswer::not_yet) return true;
  const auto request = Hello::parse(rejected.offer_a.private_data);
  if (!request || reply->answer != HelloAnswer::refused) return false;
  collect();
  return devices_.contains(queue_pairs_of(*request));
}

}  // namespace weft::capture
