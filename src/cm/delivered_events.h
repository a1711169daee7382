// Counts the events of one id that the program has fetched and acknowledged. rdma_destroy_id(3) and
// rdma_migrate_id(3) block until every fetched event is acknowledged.
//
// It has its own lock: the program acknowledges events on any thread, also while another one waits
// in wait_for_all().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weft::cm {

class DeliveredEvents {
 public:
  void count() { delivered_.fetch_add(1); }
  void acknowledge() {
    {
      const std::lock_guard lock(mutex_);
      ++acknowledged_;
    }
    all_acknowledged_.notify_all();
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    all_acknowledged_.wait(lock, [this] { return acknowledged_ == delivered_.load(); });
  }

 private:
  std::atomic<std::uint32_t> delivered_{0};
  std::mutex mutex_;
  std::condition_variable all_acknowledged_;
  std::uint32_t acknowledged_ = 0;
};

}  // namespace weft::cm
