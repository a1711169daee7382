// RecordPool: records of the connections of one loop that are used again. Up to a queue of messages
// lives at a time, more than malloc(3) keeps at hand for a thread; with the pool a short message
// allocates nothing. The record that was given back last is used first, because its memory is in
// the cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "message/record.h"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class RecordPool {
 public:
  // A new record of this link.
  template <typename Owner>
  [[nodiscard]] std::shared_ptr<Record> take(Owner& link) {
    std::shared_ptr<Record> record;
    if (unused_.empty()) {
      record = std::make_shared<Record>();
    } else {
      record = std::move(unused_.back());
      unused_.pop_back();
    }
    // To count a weak pointer takes two atomic operations. A new link may lie where an older one
    // was.
    if (record->owner != &link || record->link.expired()) {
      record->link = link.weak_from_this();
      record->owner = &link;
    }
    return record;
  }

  // Keeps a record whose final status was reported, unless the application has a handle of it.
  void give_back(std::shared_ptr<Record> record) {
    if (record.use_count() != 1 || unused_.size() == most_unused) return;
    come_after_last_handle(record);
    record->reset();
    unused_.push_back(std::move(record));
  }

 private:
  // The last handle may have been destroyed in another thread: what follows comes after that.
  static void come_after_last_handle([[maybe_unused]] const std::shared_ptr<Record>& record) {
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer knows no fences. The count of a copy is decremented with acquire and release.
    const auto copy = record;
#else
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
  }

  static constexpr std::size_t most_unused = 1024;
  std::vector<std::shared_ptr<Record>> unused_;
};

}  // namespace weft::message::detail
