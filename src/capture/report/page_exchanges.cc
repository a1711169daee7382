#include "capture/report/page_exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "capture/text/units.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture {
namespace {

constexpr std::size_t recent_operations = 4096;
// How many more operations, of any connection, to wait for before an exchange is completed. An
// operation is reported when it is confirmed, which may be after the RPC that it belongs to.
constexpr std::uint64_t later_operations = 512;
constexpr std::size_t max_pending = 1024;
// Operations before and after an operation that are shown with it.
constexpr std::size_t neighbours = 3;

// Returns the handles of all chunks of the call, by which operations of the RPC are recognised.
std::vector<std::uint32_t> keys_of(const Rpc& rpc) {
  std::vector<std::uint32_t> keys;
  if (!rpc.call) return keys;
  const ChunkLists& lists = rpc.call->lists;
  for (const auto& read : lists.reads) keys.push_back(read.target.handle);
  for (const Chunk& chunk : lists.writes) {
    for (const auto& segment : chunk) keys.push_back(segment.handle);
  }
  if (lists.reply) {
    for (const auto& segment : *lists.reply) keys.push_back(segment.handle);
  }
  return keys;
}

bool by_first_frame(const PageOperation& left, const PageOperation& right) {
  return left.start.frame < right.start.frame;
}

}  // namespace

PageOperation::PageOperation(const Operation& operation)
    : start(operation.start),
      end(operation.end),
      bytes(operation.kind == Operation::Kind::read ? operation.requested_bytes : operation.bytes),
      key(operation.key),
      connection(operation.connection),
      kind(operation.kind),
      outcome(operation.outcome),
      side(operation.side) {
  if (operation.confirmed && !operation.is_request()) confirmation = operation.confirmation;
}

// Decides whether an exchange is kept, and for which reason. Failed ones have priority over first
// ones, and those over slow ones.
bool PageExchanges::choose(ConnectionId connection, bool call, bool good, std::int64_t latency_ns,
                           Reason& reason) {
  auto found = connections_.find(connection);
  if (found == connections_.end()) {
    if (connections_.size() == max_connections) return false;
    found = connections_.try_emplace(connection).first;
  }
  // On a connection with RPCs or storage commands, single operations are not shown as exchanges.
  if (!call && found->second.calls.count[static_cast<std::size_t>(Reason::first)] > 0) return false;
  Choice& choice = found->second.of(call);
  const auto take = [&](Reason why) {
    reason = why;
    ++choice.count[static_cast<std::size_t>(why)];
    return true;
  };
  const auto has_room = [&](Reason why) {
    return choice.count[static_cast<std::size_t>(why)] < of_a_kind;
  };
  if (!good && has_room(Reason::failed)) return take(Reason::failed);
  if (has_room(Reason::first)) return take(Reason::first);
  if (latency_ns >= 0 && (has_room(Reason::slow) || latency_ns > choice.floor_ns)) {
    return take(Reason::slow);
  }
  return false;
}

// Remembers an operation. If it is chosen, it stays pending until later operations are known.
void PageExchanges::add(const Operation& operation) {
  ++seen_;
  recent_.emplace_back(operation);
  if (recent_.size() > recent_operations) recent_.pop_front();
  const PageOperation& own = recent_.back();
  Pending pending;
  if (choose(own.connection, false, own.good(), operation.latency_ns(), pending.reason)) {
    PageExchange& exchange = pending.exchange;
    exchange.connection = own.connection;
    exchange.side = own.side;
    exchange.title = to_string(own.kind);
    exchange.detail = bytes_text(own.bytes);
    exchange.outcome = to_string(own.outcome);
    exchange.good = own.good();
    exchange.start = own.start;
    exchange.latency_ns = operation.latency_ns();
    pending.first_frame = own.start.frame;
    pending.done_ns = own.done_ns();
    pending.due = seen_ + later_operations;
    pending_.push_back(std::move(pending));
  }
  while (!pending_.empty() && pending_.front().due <= seen_) {
    settle(pending_.front());
    pending_.pop_front();
  }
}

// Chooses an RPC; its operations are collected when it is due.
void PageExchanges::add(const Rpc& rpc) {
  const bool good = succeeded(rpc) && rpc.retransmissions == 0;
  const std::int64_t latency_ns = rpc.call && rpc.reply ? rpc.latency_ns : -1;
  Pending pending;
  if (!choose(rpc.connection, true, good, latency_ns, pending.reason)) return;
  PageExchange& exchange = pending.exchange;
  exchange.connection = rpc.connection;
  exchange.side = rpc.caller;
  exchange.title = describe(rpc);
  exchange.detail = detail_text(rpc);
  exchange.outcome =
      fmt::format("{}{}", outcome_text(rpc), rpc.retransmissions > 0 ? ", sent again" : "");
  exchange.good = good;
  exchange.call = true;
  exchange.start = rpc.call ? rpc.call->first : rpc.reply->first;
  exchange.latency_ns = latency_ns;
  pending.keys = keys_of(rpc);
  pending.first_frame = exchange.start.frame;
  if (rpc.call) pending.call_frame = rpc.call->first.frame;
  if (rpc.reply) pending.reply_frame = rpc.reply->first.frame;
  pending.done_ns = rpc.reply ? rpc.reply->last.time_ns : exchange.start.time_ns;
  wait_for_operations(std::move(pending));
}

// Chooses a command of a storage protocol.
void PageExchanges::add(const StorageCommand& command) {
  const bool good = command.outcome == StorageCommand::Outcome::succeeded;
  Pending pending;
  if (!choose(command.connection, true, good, command.latency_ns, pending.reason)) return;
  PageExchange& exchange = pending.exchange;
  exchange.connection = command.connection;
  exchange.side = command.requester;
  exchange.title = describe(command);
  exchange.detail = detail_text(command);
  exchange.outcome = outcome_text(command);
  exchange.good = good;
  exchange.call = true;
  exchange.start = first_stamp(command);
  exchange.latency_ns = command.latency_ns;
  pending.keys = command.keys;
  pending.first_frame = exchange.start.frame;
  if (command.request) pending.call_frame = command.request->frame;
  if (command.answer) pending.reply_frame = command.answer->frame;
  pending.done_ns = command.last.time_ns;
  wait_for_operations(std::move(pending));
}

// The operations of a call may be reported after it, so they are collected later.
void PageExchanges::wait_for_operations(Pending pending) {
  pending.due = seen_ + later_operations;
  pending_.push_back(std::move(pending));
  // If operations are deselected, none arrives and nothing becomes due, so the list must be bounded
  // here.
  if (pending_.size() > max_pending) {
    settle(pending_.front());
    pending_.pop_front();
  }
}

void PageExchanges::finish() {
  for (Pending& pending : pending_) settle(pending);
  pending_.clear();
}

void PageExchanges::settle(Pending& pending) {
  if (pending.exchange.call) {
    collect(pending);
  } else {
    collect_neighbours(pending);
  }
  keep(pending);
}

// Collects the Sends of call and reply, and the operations on the memory that the call grants
// between them.
void PageExchanges::collect(Pending& pending) const {
  const PageExchange& exchange = pending.exchange;
  const auto belongs = [&](const PageOperation& operation) {
    if (operation.connection != exchange.connection) return false;
    if (operation.kind == Operation::Kind::send) {
      const bool call = operation.side == exchange.side;
      const std::uint64_t frame = call ? pending.call_frame : pending.reply_frame;
      return frame != 0 && operation.start.frame == frame;
    }
    return operation.side != exchange.side && operation.start.frame >= pending.first_frame &&
           operation.start.time_ns <= pending.done_ns &&
           std::ranges::find(pending.keys, operation.key) != pending.keys.end();
  };
  auto& out = pending.exchange.operations;
  std::ranges::copy_if(recent_, std::back_inserter(out), belongs);
  std::ranges::stable_sort(out, by_first_frame);
  // The last operation is the reply; it must be kept.
  if (out.size() > max_operations) {
    out.erase(out.begin() + max_operations - 1, out.end() - 1);
  }
}

// Collects the operations of the same connection around the chosen one.
void PageExchanges::collect_neighbours(Pending& pending) const {
  std::vector<PageOperation> all;
  std::ranges::copy_if(recent_, std::back_inserter(all), [&](const PageOperation& operation) {
    return operation.connection == pending.exchange.connection;
  });
  std::ranges::stable_sort(all, by_first_frame);
  // The chosen operation may have left the recent ones already, so the first one not before it
  // counts.
  const auto own = std::ranges::find_if(all, [&](const PageOperation& operation) {
    return operation.start.frame >= pending.first_frame;
  });
  const auto after = std::ranges::find_if(own, all.end(), [&](const PageOperation& operation) {
    return operation.start.time_ns > pending.done_ns;
  });
  const auto begin = own - std::min<std::ptrdiff_t>(neighbours, own - all.begin());
  const auto end = after + std::min<std::ptrdiff_t>(neighbours, all.end() - after);
  constexpr std::ptrdiff_t most = 16;
  pending.exchange.operations.assign(begin, begin + std::min(most, end - begin));
}

// Stores an exchange. Of the slow ones only the slowest stay, so each new one may replace another.
void PageExchanges::keep(Pending& pending) {
  Choice& choice = connections_[pending.exchange.connection].of(pending.exchange.call);
  choice.chosen.push_back({std::move(pending.exchange), pending.reason});
  if (pending.reason != Reason::slow) return;
  // Only the slowest stay.
  auto& chosen = choice.chosen;
  const auto speed = [](const Chosen& one) {
    return one.reason == Reason::slow ? one.exchange.latency_ns
                                      : std::numeric_limits<std::int64_t>::max();
  };
  const auto slow = std::ranges::count(chosen, Reason::slow, &Chosen::reason);
  if (static_cast<std::size_t>(slow) < of_a_kind) return;
  if (static_cast<std::size_t>(slow) > of_a_kind) {
    chosen.erase(std::ranges::min_element(chosen, {}, speed));
  }
  choice.floor_ns = speed(*std::ranges::min_element(chosen, {}, speed));
}

std::vector<const PageExchange*> PageExchanges::of(ConnectionId connection,
                                                   std::size_t limit) const {
  std::vector<const PageExchange*> out;
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return out;
  const PerConnection& own = found->second;
  const auto& chosen = (own.calls.chosen.empty() ? own.operations : own.calls).chosen;
  // The limit may be low, so each reason gets a third of the room.
  for (const Reason reason : {Reason::failed, Reason::slow, Reason::first}) {
    std::size_t room = std::max<std::size_t>(1, limit / 3);
    for (const Chosen& one : chosen) {
      if (one.reason == reason && room > 0) {
        out.push_back(&one.exchange);
        --room;
      }
    }
  }
  std::ranges::stable_sort(out, {}, [](const PageExchange* one) { return one->start.frame; });
  return out;
}

}  // namespace weft::capture
