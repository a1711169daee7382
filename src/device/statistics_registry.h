// Statistics registry: the live objects of a device, and the counters of destroyed ones.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "device/queue_pair/carrier_note.h"
#include "device/queue_pair/live_queue_pair.h"
#include "weft/counters.hpp"

namespace weft::device {

class CompletionQueue;
class QueuePair;
struct Region;

// Adds each counter.
void add_to(QueuePairCounters& sum, const QueuePairCounters& more);

// Destroyed objects are listed one by one only if the user asked for statistics
// (Settings::stats_path); so are regions. Otherwise there are sums, for `weft top`.
//
// All functions are thread-safe. The registry keeps a queue pair alive until remove(); completion
// queues and regions must stay alive until then.
class StatisticsRegistry {
 public:
  struct QueuePairEntry {
    std::uint32_t number = 0;
    std::string_view type;   // "RC", "UC", "UD"
    std::string_view state;  // "RTS"; "destroyed"
    CarrierNote carrier;
    QueuePairCounters counters;
  };
  struct CompletionQueueEntry {
    std::uint64_t number = 0;  // in the order of creation, from 1
    int entries = 0;
    bool destroyed = false;
    CompletionQueueCounters counters;
  };
  struct MemoryRegionEntry {
    std::uint32_t lkey = 0;
    std::uint64_t bytes = 0;
    bool shared = false;  // peers on this host can map it
    bool destroyed = false;
    MemoryRegionCounters counters;
  };
  struct Snapshot {
    std::vector<QueuePairEntry> queue_pairs;
    std::vector<CompletionQueueEntry> completion_queues;
    std::vector<MemoryRegionEntry> memory_regions;
    std::uint64_t not_listed = 0;  // destroyed objects beyond most_entries of a kind
  };

  // Sums over all objects that the device has had.
  struct Totals {
    QueuePairCounters queue_pairs;
    std::uint64_t queue_pairs_created = 0;
    std::uint64_t queue_pairs_destroyed = 0;
    CompletionQueueCounters completion_queues;
    std::uint64_t completion_queues_created = 0;
    std::uint64_t completion_queues_destroyed = 0;
  };

  // What `weft top` shows.
  struct Live {
    struct Pair {
      QueuePairEntry entry;
      LiveQueuePair live;
    };
    struct Queue {
      CompletionQueueEntry entry;
      std::size_t depth = 0;  // completions that are not polled
    };
    std::vector<Pair> queue_pairs;
    std::vector<Queue> completion_queues;
    std::uint64_t destroyed = 0;  // queue pairs
    QueuePairCounters destroyed_counters;
    std::uint64_t destroyed_room_wait_ns =
        0;                      // the sum of LiveQueuePair::room_wait_ns at their end
    std::uint64_t skipped = 0;  // queue pairs that were locked for long
  };

  // Limit on destroyed objects of each kind; further ones are counted in Snapshot::not_listed only.
  static constexpr std::size_t most_entries = 4096;

  explicit StatisticsRegistry(bool lists) : lists_(lists) {}

  void add(const std::shared_ptr<QueuePair>& queue_pair);
  void add(CompletionQueue& queue);
  void add(Region& region);
  // Moves the object's counters to the destroyed ones. Call it before the object is destroyed; does
  // nothing if the object is not registered.
  void remove(QueuePair& queue_pair);
  void remove(CompletionQueue& queue);
  void remove(Region& region);

  // Copies all counters as they are now. Waits up to 0.2 s for each lock, then leaves the queue
  // pair out (or returns an empty snapshot): the calling thread itself may hold the lock, if a
  // signal handler of the application ends the program.
  [[nodiscard]] Snapshot snapshot();
  // The same for `weft top`; what is locked for long is left out, and queue pairs are counted then.
  [[nodiscard]] Live live();
  // Waits for each lock, so it leaves nothing out. Not for signal handlers.
  [[nodiscard]] Totals totals();
  // Takes the latencies of all queue pairs from now on, also of later ones; or does so no more.
  void watch_latencies(bool wanted);

 private:
  template <typename Entry>
  void keep(std::vector<Entry>& list, const Entry& entry);

  const bool lists_;
  std::mutex mutex_;
  bool watches_latencies_ = false;
  Totals ended_;  // of destroyed objects; the numbers created are those of all
  std::uint64_t ended_room_wait_ns_ = 0;
  std::unordered_set<std::shared_ptr<QueuePair>> queue_pairs_;
  std::unordered_set<CompletionQueue*> completion_queues_;
  std::unordered_set<Region*> regions_;
  Snapshot destroyed_;
};

}  // namespace weft::device
