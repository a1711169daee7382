#include "device/local/access_counts.h"

#include <atomic>

namespace weft::device {
namespace {

// Only this end writes the counts of the connection, so they need no atomic addition.
void add_to(std::atomic<std::uint64_t>& count, std::uint64_t more) {
  count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

void AccessCounts::add(const GrantView::Found& found, iwarp::RemoteRight right,
                       std::uint64_t bytes) {
  const bool same = place_ == found.place && generation_ == found.generation && right_ == right;
  if (!same) {
    end();
    place_ = found.place;
    generation_ = found.generation;
    right_ = right;
  }
  ++accesses_.operations;
  accesses_.bytes += bytes;
}

void AccessCounts::end() {
  if (accesses_.operations == 0) return;
  using iwarp::RemoteRight;
  AccessTotals& all = peer_.accesses;
  AccessTotals::Count& count = right_ == RemoteRight::write  ? all.writes
                               : right_ == RemoteRight::read ? all.reads
                                                             : all.atomics;
  add_to(count.operations, accesses_.operations);
  add_to(count.bytes, accesses_.bytes);
  grants_.count(place_, generation_, right_, accesses_);
  accesses_ = {};
}

}  // namespace weft::device
