// RecordPool: records of one connection that are used again. Up to a queue of messages lives at a
// time, more than malloc(3) keeps at hand for a thread; with the pool a short message allocates
// nothing.
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
  // A new record, with the link that it belongs to.
  template <typename Owner>
  [[nodiscard]] std::shared_ptr<Record> take(Owner& link) {
    if (unused_.empty()) {
      auto record = std::make_shared<Record>();
      record->link = link.weak_from_this();
      return record;
    }
    auto record = std::move(unused_.back());
    unused_.pop_back();
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
