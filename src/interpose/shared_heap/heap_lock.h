// The lock of the shared heap. It is held across fork(2), and knows whether the thread that asks
// has it already: a signal handler may have interrupted that thread in the heap.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace weft::interpose {

class HeapLock {
 public:
  void lock() {
    std::uint32_t expected = free;
    if (!state_.compare_exchange_strong(expected, taken, std::memory_order_acquire)) wait();
    owner_.store(this_thread(), std::memory_order_relaxed);
  }
  void unlock() {
    owner_.store(nullptr, std::memory_order_relaxed);
    if (state_.exchange(free, std::memory_order_release) == awaited) {
      (void)::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  // By this thread. After fork(2) that is the thread of the same name in the child, too.
  [[nodiscard]] bool is_held() const {
    return owner_.load(std::memory_order_relaxed) == this_thread();
  }

 private:
  static constexpr std::uint32_t free = 0;
  static constexpr std::uint32_t taken = 1;
  static constexpr std::uint32_t awaited = 2;

  static const void* this_thread() { return __builtin_thread_pointer(); }

  void wait() {
    while (state_.exchange(awaited, std::memory_order_acquire) != free) {
      (void)::syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, awaited, nullptr, nullptr, 0);
    }
  }

  std::atomic<std::uint32_t> state_{free};
  std::atomic<const void*> owner_{nullptr};
};

using HeapGuard = std::lock_guard<HeapLock>;

}  // namespace weft::interpose
