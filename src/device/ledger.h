// Who counts what: the objects of a device that are there, and the counters of those that are gone.
// Kept only where somebody asked for statistics.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "weft/counters.hpp"

namespace weft::device {

class CompletionQueue;
class QueuePair;
struct Region;

class Ledger {
 public:
  struct QueuePairEntry {
    std::uint32_t number = 0;
    std::string_view type;   // "RC", "UC", "UD"
    std::string_view state;  // "RTS"; "destroyed"
    QueuePairCounters counters;
  };
  struct CompletionQueueEntry {
    std::uint64_t number = 0;  // in the order of their making, from 1
    int entries = 0;
    bool destroyed = false;
    CompletionQueueCounters counters;
  };
  struct MemoryRegionEntry {
    std::uint32_t lkey = 0;
    std::uint64_t bytes = 0;
    bool destroyed = false;
    MemoryRegionCounters counters;
  };
  struct Snapshot {
    std::vector<QueuePairEntry> queue_pairs;
    std::vector<CompletionQueueEntry> completion_queues;
    std::vector<MemoryRegionEntry> memory_regions;
    std::uint64_t not_listed = 0;  // objects that are gone, beyond most_entries of a kind
  };

  static constexpr std::size_t most_entries = 4096;

  void add(const std::shared_ptr<QueuePair>& queue_pair);
  void add(CompletionQueue& queue);
  void add(Region& region);
  // Before it goes.
  void remove(QueuePair& queue_pair);
  void remove(CompletionQueue& queue);
  void remove(Region& region);

  // What there is at this moment. Leaves out a queue pair whose lock cannot be had for a while: its
  // holder may be the thread that asks, from a signal handler that ends the program.
  [[nodiscard]] Snapshot snapshot();

 private:
  template <typename Entry>
  void keep(std::vector<Entry>& list, const Entry& entry);

  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<QueuePair>> queue_pairs_;
  std::unordered_set<CompletionQueue*> completion_queues_;
  std::unordered_set<Region*> regions_;
  Snapshot gone_;
  std::uint64_t last_queue_ = 0;
};

}  // namespace weft::device
