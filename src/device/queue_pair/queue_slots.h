// The places of a queue: how many requests may be posted before others are done with.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::device {

// A request keeps its place until the completion that covers it has been polled, as on adapters: a
// program that posts until ENOMEM cannot overrun a completion queue that is as large as its queues.
// A completion covers its own request and the unsignaled ones before it.
class QueueSlots {
 public:
  explicit QueueSlots(std::uint32_t capacity) : capacity_(capacity) {}

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  // Exact while the lock of the posting queue is held; otherwise some that were taken since may
  // count.
  [[nodiscard]] std::uint32_t taken() const {
    const std::uint32_t returned = returned_.load(std::memory_order_acquire);
    return taken_.load(std::memory_order_relaxed) - returned;
  }
  [[nodiscard]] bool full() const { return taken() >= capacity_; }

  // The lock of the posting queue must be held; full() was false.
  void take() {
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void resize(std::uint32_t capacity) { capacity_ = capacity; }
  // Of a shared receive queue, whose lock is not that of the queue pairs that use it.
  void set_shared() { shared_ = true; }
  void clear() {
    returned_.store(taken_.load(std::memory_order_relaxed), std::memory_order_release);
  }

  // The lock of the queue pair must be held that completes the requests.
  void give_back_locked(std::uint32_t count) {
    if (shared_) return give_back(count);
    taken_.store(taken_.load(std::memory_order_relaxed) - count, std::memory_order_relaxed);
  }
  // The lock of the completion queue must be held that the completions are in. Those of a queue
  // that is not shared are all in one.
  void give_back_taken(std::uint32_t count) {
    if (shared_) return give_back(count);
    returned_.store(returned_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }

 private:
  void give_back(std::uint32_t count) { returned_.fetch_add(count, std::memory_order_release); }

  std::uint32_t capacity_;
  bool shared_ = false;
  // Since the beginning; they wrap around. Each has one writer at a time, which needs no atomic
  // addition, but for the second one of a shared queue.
  std::atomic<std::uint32_t> taken_{0};
  std::atomic<std::uint32_t> returned_{0};
};

}  // namespace weft::device
