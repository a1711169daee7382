#include "device/statistics_registry.h"

#include <algorithm>
#include <array>

#include "device/bounded_lock.h"
#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/local/grant_table.h"
#include "device/memory/memory.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {
namespace {

std::string_view type_name(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    case IBV_QPT_XRC_SEND:
      return "XRC_SEND";
    case IBV_QPT_XRC_RECV:
      return "XRC_RECV";
    default:
      return "RC";
  }
}

std::string_view state_name(ibv_qp_state state) {
  constexpr std::array<std::string_view, 7> names{"RESET", "INIT", "RTR", "RTS",
                                                  "SQD",   "SQE",  "ERR"};
  return state < names.size() ? names[state] : "UNKNOWN";
}

StatisticsRegistry::QueuePairEntry entry_of(QueuePair& queue_pair, const CarrierNote& carrier,
                                            const QueuePairCounters& counters) {
  const ibv_qp& qp = *queue_pair.verbs();
  return {.number = qp.qp_num,
          .type = type_name(qp.qp_type),
          .state = state_name(qp.state),
          .carrier = carrier,
          .counters = counters};
}

StatisticsRegistry::CompletionQueueEntry entry_of(CompletionQueue& queue,
                                                  const CompletionQueueCounters& counters) {
  return {.number = queue.number(), .entries = queue.verbs()->cqe, .counters = counters};
}

StatisticsRegistry::MemoryRegionEntry entry_of(const Region& region) {
  return {.lkey = region.mr.lkey,
          .bytes = region.length_bytes,
          .shared = region.file_name().valid(),
          .counters = Context::of(region.mr.context)->grants().counters(region)};
}

void add(Traffic& sum, const Traffic& more) {
  sum.operations += more.operations;
  sum.bytes += more.bytes;
}

void add(StatusCounts& sum, const StatusCounts& more) {
  for (std::size_t status = 0; status < sum.size(); ++status) sum[status] += more[status];
}

void add(QueuePairCounters& sum, const QueuePairCounters& more) {
  add(sum.sends, more.sends);
  add(sum.writes, more.writes);
  add(sum.reads, more.reads);
  add(sum.atomics, more.atomics);
  add(sum.local, more.local);
  add(sum.receives, more.receives);
  add(sum.received, more.received);
  add(sum.peer_writes, more.peer_writes);
  add(sum.peer_reads, more.peer_reads);
  add(sum.peer_atomics, more.peer_atomics);
  add(sum.send_completions, more.send_completions);
  add(sum.receive_completions, more.receive_completions);
  sum.connection_retries += more.connection_retries;
  sum.rnr_waits += more.rnr_waits;
  sum.rnr_wait_ns += more.rnr_wait_ns;
  sum.credit_waits += more.credit_waits;
  sum.credit_wait_ns += more.credit_wait_ns;
  sum.discarded_answer_bytes += more.discarded_answer_bytes;
  add(sum.unreceived, more.unreceived);
  sum.unpolled_receives += more.unpolled_receives;
}

void add(CompletionQueueCounters& sum, const CompletionQueueCounters& more) {
  add(sum.completions, more.completions);
  sum.polled += more.polled;
  sum.events += more.events;
  sum.lost += more.lost;
}

void watch(QueuePair& queue_pair, bool wanted) {
  std::unique_lock own(queue_pair.mutex(), std::defer_lock);
  if (lock_for_a_while(own)) queue_pair.watch_latencies_locked(wanted);
}

std::uint64_t room_wait_of(QueuePair& queue_pair) {
  const std::lock_guard own(queue_pair.mutex());
  return queue_pair.live_locked().room_wait_ns;
}

}  // namespace

void add_to(QueuePairCounters& sum, const QueuePairCounters& more) {
  add(sum, more);
}

// Bounded, because a program may create and destroy queue pairs for ever.
template <typename Entry>
void StatisticsRegistry::keep(std::vector<Entry>& list, const Entry& entry) {
  if (!lists_) return;
  if (list.size() < most_entries) {
    list.push_back(entry);
  } else {
    ++destroyed_.not_listed;
  }
}

void StatisticsRegistry::add(const std::shared_ptr<QueuePair>& queue_pair) {
  const std::lock_guard lock(mutex_);
  queue_pairs_.insert(queue_pair);
  ++ended_.queue_pairs_created;
  if (watches_latencies_) watch(*queue_pair, true);
}

// Completion queues have no number in verbs; the registry numbers them for the report.
void StatisticsRegistry::add(CompletionQueue& queue) {
  const std::lock_guard lock(mutex_);
  queue.set_number(++ended_.completion_queues_created);
  completion_queues_.insert(&queue);
}

void StatisticsRegistry::add(Region& region) {
  if (!lists_) return;
  const std::lock_guard lock(mutex_);
  regions_.insert(&region);
}

// Reads the counters, which takes the queue pair's lock, before it takes mutex_: snapshot() takes
// the two locks in the other order.
void StatisticsRegistry::remove(QueuePair& queue_pair) {
  const auto counters = queue_pair.counters();
  const CarrierNote carrier = queue_pair.carrier_note();
  const std::uint64_t room_wait_ns = room_wait_of(queue_pair);
  const std::lock_guard lock(mutex_);
  if (queue_pairs_.erase(queue_pair.shared_from_this()) == 0) return;
  auto entry = entry_of(queue_pair, carrier, counters);
  entry.state = "destroyed";
  ++ended_.queue_pairs_destroyed;
  device::add(ended_.queue_pairs, counters);
  ended_room_wait_ns_ += room_wait_ns;
  keep(destroyed_.queue_pairs, entry);
}

void StatisticsRegistry::remove(CompletionQueue& queue) {
  const std::lock_guard lock(mutex_);
  if (completion_queues_.erase(&queue) == 0) return;
  auto entry = entry_of(queue, queue.counters());
  entry.destroyed = true;
  ++ended_.completion_queues_destroyed;
  device::add(ended_.completion_queues, entry.counters);
  keep(destroyed_.completion_queues, entry);
}

void StatisticsRegistry::remove(Region& region) {
  if (!lists_) return;
  const std::lock_guard lock(mutex_);
  if (regions_.erase(&region) == 0) return;
  auto entry = entry_of(region);
  entry.destroyed = true;
  keep(destroyed_.memory_regions, entry);
}

StatisticsRegistry::Snapshot StatisticsRegistry::snapshot() {
  std::unique_lock lock(mutex_, std::defer_lock);
  // A report may be wanted because the program hangs with a lock held: it must not hang as well.
  if (!lock_for_a_while(lock)) return {};
  Snapshot all = destroyed_;
  for (const auto& queue_pair : queue_pairs_) {
    std::unique_lock own(queue_pair->mutex(), std::defer_lock);
    if (lock_for_a_while(own)) {
      all.queue_pairs.push_back(
          entry_of(*queue_pair, queue_pair->carrier_note_locked(), queue_pair->counters_locked()));
    }
  }
  for (CompletionQueue* queue : completion_queues_) {
    std::unique_lock own(queue->mutex(), std::defer_lock);
    if (lock_for_a_while(own)) {
      all.completion_queues.push_back(entry_of(*queue, queue->counters_locked()));
    }
  }
  // Counters of regions are atomic and need no lock; mutex_ keeps the region itself.
  for (const Region* region : regions_) all.memory_regions.push_back(entry_of(*region));
  std::ranges::sort(all.queue_pairs, {}, &QueuePairEntry::number);
  std::ranges::sort(all.completion_queues, {}, &CompletionQueueEntry::number);
  std::ranges::sort(all.memory_regions, {}, &MemoryRegionEntry::lkey);
  return all;
}

void StatisticsRegistry::watch_latencies(bool wanted) {
  const std::lock_guard lock(mutex_);
  watches_latencies_ = wanted;
  for (const auto& queue_pair : queue_pairs_) watch(*queue_pair, wanted);
}

// A queue pair that is destroyed meanwhile keeps its counters, and counts as live here.
StatisticsRegistry::Totals StatisticsRegistry::totals() {
  Totals all;
  std::vector<std::shared_ptr<QueuePair>> pairs;
  {
    const std::lock_guard lock(mutex_);
    all = ended_;
    pairs.assign(queue_pairs_.begin(), queue_pairs_.end());
    for (CompletionQueue* queue : completion_queues_) {
      device::add(all.completion_queues, queue->counters());
    }
  }
  for (const auto& pair : pairs) device::add(all.queue_pairs, pair->counters());
  return all;
}

// The locks of queue pairs are taken without mutex_, because one of them may be held for long, and
// the program is not to wait here when it makes or destroys an object.
StatisticsRegistry::Live StatisticsRegistry::live() {
  Live all;
  std::vector<std::shared_ptr<QueuePair>> pairs;
  {
    const std::lock_guard lock(mutex_);
    all.destroyed = ended_.queue_pairs_destroyed;
    all.destroyed_counters = ended_.queue_pairs;
    all.destroyed_room_wait_ns = ended_room_wait_ns_;
    pairs.assign(queue_pairs_.begin(), queue_pairs_.end());
    for (CompletionQueue* queue : completion_queues_) {
      const std::unique_lock own(queue->mutex(), std::try_to_lock);
      if (!own) continue;
      all.completion_queues.push_back(
          {entry_of(*queue, queue->counters_locked()), queue->depth_locked()});
    }
  }
  for (const auto& pair : pairs) {
    std::unique_lock own(pair->mutex(), std::defer_lock);
    if (!lock_for_a_while(own)) {
      ++all.skipped;
      continue;
    }
    all.queue_pairs.push_back(
        {entry_of(*pair, pair->carrier_note_locked(), pair->counters_locked()),
         pair->live_locked()});
  }
  std::ranges::sort(all.queue_pairs, {}, [](const Live::Pair& pair) { return pair.entry.number; });
  std::ranges::sort(all.completion_queues, {},
                    [](const Live::Queue& queue) { return queue.entry.number; });
  return all;
}

}  // namespace weft::device
