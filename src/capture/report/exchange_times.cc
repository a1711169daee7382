#include "capture/report/exchange_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "capture/text/units.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture {
namespace {

// RFC 1122 §4.2.3.2 allows half a second; Linux waits for 40 ms, and at most 200 ms.
constexpr std::int64_t delayed_from_ns = 38'000'000;
constexpr std::int64_t delayed_to_ns = 46'000'000;

// Returns what an exchange waited for, as parts of a sentence that begin with a comma or a
// semicolon; empty if it did not.
std::string waits_text(const TimeParts& parts) {
  std::string text;
  if (parts.receives_ns > 0) {
    text += fmt::format("; it waited {} for a receiver that was not ready, until frame {}",
                        duration_text(parts.receives_ns), parts.ready_frame);
  }
  if (parts.repeats_ns > 0) {
    text += fmt::format("; it waited up to {} until packets{} had been sent again, in frame {}",
                        duration_text(parts.repeats_ns),
                        parts.lost_before_capture ? " that were lost before the capture" : "",
                        parts.repeated_frame);
  }
  const auto held = [&text](std::int64_t time_ns, std::string_view what) {
    if (time_ns <= 0) return;
    text += fmt::format("; before the call its sender waited up to {} {}", duration_text(time_ns),
                        what);
  };
  held(parts.credits_ns, "for a credit");
  held(parts.queue_ns, "because the queue was full");
  held(parts.slots_ns, "for a free slot of the session");
  return text;
}

// Returns a sentence about an interval that only TCP makes; empty if there is none.
std::string tcp_text(const ConnectionTable& connections, ConnectionId id, std::int64_t waited_ns) {
  const Connection* const known = connections.find(id);
  if (known == nullptr || known->transport != Transport::iwarp) return {};
  if (waited_ns < delayed_from_ns || waited_ns > delayed_to_ns) return {};
  return " That is the time after which Linux sends a delayed acknowledgement.";
}

std::string story_of(const Rpc& rpc, const TimeParts& parts, const ConnectionTable& connections) {
  const RpcMessage& call = *rpc.call;
  const RpcMessage& reply = *rpc.reply;
  std::string text = fmt::format("The call is in frame {}", call.first.frame);
  if (rpc.retransmissions > 0) {
    text += fmt::format(", and was sent again {}", times_text(rpc.retransmissions));
  }
  text += fmt::format("; the reply is in frame {}", reply.first.frame);
  if (rpc.transfer_ns > 0) {
    text += fmt::format(". Its chunks took {}, and the responder {}",
                        duration_text(parts.transfer_ns), duration_text(parts.server_ns));
  } else {
    text +=
        fmt::format(". It has no chunks, so the responder had {}", duration_text(parts.server_ns));
  }
  return text + waits_text(parts) + "." + tcp_text(connections, rpc.connection, parts.server_ns);
}

std::string story_of(const StorageCommand& command, const TimeParts& parts,
                     const ConnectionTable& connections) {
  std::string text;
  if (const std::string detail = detail_text(command); !detail.empty()) text = detail + ". ";
  text += fmt::format("The command is in frame {}; the answer is in frame {}: {}",
                      command.request->frame, command.answer->frame, command.status_text);
  if (command.interim) {
    text +=
        fmt::format(". The server said in frame {} that it takes longer", command.interim->frame);
  }
  if (command.transfer_ns > 0) {
    text += fmt::format(". Its data took {}, and the target {}", duration_text(parts.transfer_ns),
                        duration_text(parts.server_ns));
  }
  return text + waits_text(parts) + "." +
         tcp_text(connections, command.connection, parts.server_ns);
}

std::string story_of(const Operation& operation, const TimeParts& parts,
                     const ConnectionTable& connections) {
  const Stamp& end = operation.is_request() ? operation.end : operation.confirmation;
  std::string text =
      fmt::format("{} begins in frame {}", bytes_text(operation.bytes), operation.start.frame);
  text += fmt::format(" and is {} in frame {}",
                      operation.is_request() ? "answered" : "acknowledged", end.frame);
  if (operation.repeated) text += "; it was requested again";
  if (operation.not_ready > 0) {
    text += fmt::format("; it met {}", count_text(operation.not_ready, "RNR NAK"));
  }
  return text + waits_text(parts) + "." +
         tcp_text(connections, operation.connection, parts.server_ns);
}

// An answer that waits for credits of SMB Direct waits for the receives of the other side, which is
// not the server's time.
void note_limits(const StorageCommand::Timing& timing, TimeParts& parts) {
  parts.client_ns = timing.idle_ns;
  parts.credits_ns = timing.credits_ns;
  parts.queue_ns = timing.queue_ns;
  const std::int64_t waited_ns =
      std::min(timing.receives_ns, std::max<std::int64_t>(0, parts.server_ns));
  if (waited_ns <= 0) return;
  parts.receives_ns += waited_ns;
  parts.server_ns -= waited_ns;
  parts.ready_frame = std::max(parts.ready_frame, timing.receives_frame);
}

}  // namespace

TimeParts& TimeParts::operator+=(const TimeParts& other) {
  transfer_ns += other.transfer_ns;
  receives_ns += other.receives_ns;
  repeats_ns += other.repeats_ns;
  server_ns += other.server_ns;
  credits_ns += other.credits_ns;
  queue_ns += other.queue_ns;
  slots_ns += other.slots_ns;
  client_ns += other.client_ns;
  return *this;
}

TimeParts ExchangeTimes::parts_of(ConnectionId connection, std::int64_t from_ns,
                                  std::int64_t latency_ns, std::int64_t transfer_from_ns,
                                  std::int64_t transfer_ns) const {
  const WaitTimes::Parts all = waits_.between(connection, from_ns, from_ns + latency_ns);
  const WaitTimes::Parts within =
      waits_.between(connection, transfer_from_ns, transfer_from_ns + transfer_ns);
  TimeParts parts;
  // The transfer may have begun before the call where several captures were joined.
  parts.transfer_ns = std::clamp<std::int64_t>(
      transfer_ns - within.sum_ns(), 0, std::max<std::int64_t>(0, latency_ns - all.sum_ns()));
  parts.receives_ns = all.receives_ns;
  parts.repeats_ns = all.repeats_ns;
  parts.server_ns = latency_ns - all.sum_ns() - parts.transfer_ns;
  parts.ready_frame = all.ready_frame;
  parts.repeated_frame = all.repeated_frame;
  parts.lost_before_capture = all.lost_before_capture;
  return parts;
}

// Returns whether an exchange is among the slowest so far. This is tested before its story is
// written, because most exchanges are not. The map is sorted by latency, so its first entry is the
// fastest of those that are kept.
bool ExchangeTimes::is_slow(std::int64_t latency_ns) const {
  if (slowest_limit_ == 0) return false;
  return slowest_.size() < slowest_limit_ || latency_ns > slowest_.begin()->first;
}

void ExchangeTimes::keep(SlowExchange exchange) {
  const std::int64_t latency_ns = exchange.latency_ns;
  slowest_.emplace(latency_ns, std::move(exchange));
  if (slowest_.size() > slowest_limit_) slowest_.erase(slowest_.begin());
}

// The names come from the wire, so their number is limited; further ones share one entry.
void ExchangeTimes::count(std::string name, std::int64_t latency_ns, const TimeParts& parts,
                          bool failed) {
  const bool room = procedures_.size() < max_procedures || procedures_.contains(name);
  if (!room) name = "other procedures";
  ProcedureTimes& times = procedures_[name];
  if (times.name.empty()) times.name = std::move(name);
  times.latency.add(latency_ns);
  times.total_ns += latency_ns;
  times.parts += parts;
  if (failed) ++times.failed;
}

void ExchangeTimes::add(const Rpc& rpc) {
  if (!rpc.call || !rpc.reply) return;
  TimeParts parts = parts_of(rpc.connection, rpc.call->first.time_ns, rpc.latency_ns,
                             rpc.transfer_from_ns, rpc.transfer_ns);
  parts.credits_ns = rpc.credits_ns;
  parts.slots_ns = rpc.slots_ns;
  parts.client_ns = rpc.idle_ns;
  count(describe(rpc), rpc.latency_ns, parts, !succeeded(rpc));
  if (!is_slow(rpc.latency_ns)) return;
  keep({.connection = rpc.connection,
        .side = rpc.caller,
        .name = describe(rpc),
        .xid = rpc.xid,
        .first = rpc.call->first,
        .last = rpc.reply->first,
        .latency_ns = rpc.latency_ns,
        .parts = parts,
        .story = story_of(rpc, parts, connections_)});
}

void ExchangeTimes::add(const StorageCommand& command) {
  if (command.latency_ns < 0) return;
  TimeParts parts = parts_of(command.connection, command.request->time_ns, command.latency_ns,
                             command.timing.transfer_from_ns, command.transfer_ns);
  note_limits(command.timing, parts);
  count(describe(command), command.latency_ns, parts,
        command.outcome == StorageCommand::Outcome::failed);
  if (!is_slow(command.latency_ns)) return;
  keep({.connection = command.connection,
        .side = command.requester,
        .name = describe(command),
        .xid = {},
        .first = *command.request,
        .last = *command.answer,
        .latency_ns = command.latency_ns,
        .parts = parts,
        .story = story_of(command, parts, connections_)});
}

void ExchangeTimes::add(const Operation& operation) {
  const std::int64_t latency_ns = operation.latency_ns();
  if (latency_ns < 0 || !is_slow(latency_ns)) return;
  const TimeParts parts = parts_of(operation.connection, operation.start.time_ns, latency_ns, 0, 0);
  keep({.connection = operation.connection,
        .side = operation.side,
        .name = to_string(operation.kind),
        .xid = {},
        .first = operation.start,
        .last = operation.is_request() ? operation.end : operation.confirmation,
        .latency_ns = latency_ns,
        .parts = parts,
        .story = story_of(operation, parts, connections_)});
}

// The map is sorted by name, and the stable sort keeps that order among equal times.
std::vector<const ProcedureTimes*> ExchangeTimes::procedures() const {
  std::vector<const ProcedureTimes*> all;
  for (const auto& [name, times] : procedures_) all.push_back(&times);
  std::ranges::stable_sort(all, std::greater(), &ProcedureTimes::total_ns);
  return all;
}

std::vector<SlowExchange> ExchangeTimes::slowest() const {
  std::vector<SlowExchange> all;
  for (auto one = slowest_.rbegin(); one != slowest_.rend(); ++one) all.push_back(one->second);
  return all;
}

}  // namespace weft::capture
