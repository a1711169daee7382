#include "capture/report/exchange_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/text/units.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture {
namespace {

// RFC 1122 §4.2.3.2 allows half a second; Linux waits for 40 ms, and at most 200 ms.
constexpr std::int64_t delayed_from_ns = 38'000'000;
constexpr std::int64_t delayed_to_ns = 46'000'000;

// Returns a sentence about an interval that only TCP makes; empty if there is none.
std::string tcp_text(const ConnectionTable& connections, ConnectionId id, std::int64_t waited_ns) {
  const Connection* const known = connections.find(id);
  if (known == nullptr || known->transport != Transport::iwarp) return {};
  if (waited_ns < delayed_from_ns || waited_ns > delayed_to_ns) return {};
  return " That is the time after which Linux sends a delayed acknowledgement.";
}

std::string story_of(const Rpc& rpc, const ConnectionTable& connections) {
  const RpcMessage& call = *rpc.call;
  const RpcMessage& reply = *rpc.reply;
  std::string text = fmt::format("The call is in frame {}", call.first.frame);
  if (rpc.retransmissions > 0) {
    text += fmt::format(
        ", and was sent again {}",
        rpc.retransmissions == 1 ? "once" : fmt::format("{} times", rpc.retransmissions));
  }
  text += fmt::format("; the reply is in frame {}", reply.first.frame);
  const std::int64_t rest_ns = rpc.latency_ns - rpc.transfer_ns;
  if (rpc.transfer_ns > 0) {
    text += fmt::format(". Its chunks took {}, and the responder {}",
                        duration_text(rpc.transfer_ns), duration_text(rest_ns));
  } else {
    text += fmt::format(". It has no chunks, so the responder had {}", duration_text(rest_ns));
  }
  return text + "." + tcp_text(connections, rpc.connection, rest_ns);
}

std::string story_of(const StorageCommand& command, const ConnectionTable& connections) {
  std::string text;
  if (const std::string detail = detail_text(command); !detail.empty()) text = detail + ". ";
  text += fmt::format("The command is in frame {}; the answer is in frame {}: {}",
                      command.request->frame, command.answer->frame, command.status_text);
  if (command.interim) {
    text +=
        fmt::format(". The server said in frame {} that it takes longer", command.interim->frame);
  }
  const std::int64_t rest_ns = command.latency_ns - command.transfer_ns;
  if (command.transfer_ns > 0) {
    text += fmt::format(". Its data took {}, and the target {}", duration_text(command.transfer_ns),
                        duration_text(rest_ns));
  }
  return text + "." + tcp_text(connections, command.connection, rest_ns);
}

std::string story_of(const Operation& operation, const ConnectionTable& connections) {
  const Stamp& end = operation.is_request() ? operation.end : operation.confirmation;
  std::string text =
      fmt::format("{} begins in frame {}", bytes_text(operation.bytes), operation.start.frame);
  text += fmt::format(" and is {} in frame {}",
                      operation.is_request() ? "answered" : "acknowledged", end.frame);
  if (operation.repeated) text += "; it was requested again";
  if (operation.not_ready > 0) {
    text += fmt::format("; it met {}", count_text(operation.not_ready, "RNR NAK"));
  }
  return text + "." + tcp_text(connections, operation.connection, operation.latency_ns());
}

}  // namespace

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
void ExchangeTimes::count(std::string name, std::int64_t latency_ns, std::int64_t transfer_ns,
                          bool failed) {
  const bool room = procedures_.size() < max_procedures || procedures_.contains(name);
  if (!room) name = "other procedures";
  ProcedureTimes& times = procedures_[name];
  if (times.name.empty()) times.name = std::move(name);
  times.latency.add(latency_ns);
  times.total_ns += latency_ns;
  times.transfer_ns += transfer_ns;
  if (failed) ++times.failed;
}

void ExchangeTimes::add(const Rpc& rpc) {
  if (!rpc.call || !rpc.reply) return;
  count(describe(rpc), rpc.latency_ns, rpc.transfer_ns, !succeeded(rpc));
  if (!is_slow(rpc.latency_ns)) return;
  keep({.connection = rpc.connection,
        .side = rpc.caller,
        .name = describe(rpc),
        .xid = rpc.xid,
        .first = rpc.call->first,
        .last = rpc.reply->first,
        .latency_ns = rpc.latency_ns,
        .transfer_ns = rpc.transfer_ns,
        .story = story_of(rpc, connections_)});
}

void ExchangeTimes::add(const StorageCommand& command) {
  if (command.latency_ns < 0) return;
  count(describe(command), command.latency_ns, command.transfer_ns,
        command.outcome == StorageCommand::Outcome::failed);
  if (!is_slow(command.latency_ns)) return;
  keep({.connection = command.connection,
        .side = command.requester,
        .name = describe(command),
        .xid = {},
        .first = *command.request,
        .last = *command.answer,
        .latency_ns = command.latency_ns,
        .transfer_ns = command.transfer_ns,
        .story = story_of(command, connections_)});
}

void ExchangeTimes::add(const Operation& operation) {
  const std::int64_t latency_ns = operation.latency_ns();
  if (latency_ns < 0 || !is_slow(latency_ns)) return;
  keep({.connection = operation.connection,
        .side = operation.side,
        .name = to_string(operation.kind),
        .xid = {},
        .first = operation.start,
        .last = operation.is_request() ? operation.end : operation.confirmation,
        .latency_ns = latency_ns,
        .transfer_ns = 0,
        .story = story_of(operation, connections_)});
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
