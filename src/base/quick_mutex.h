// A mutex for locks of the data path. Lock and unlock of a free one are an inline atomic operation
// each; those of std::mutex are three calls and 77 instructions in glibc 2.36. A thread that has to
// wait sleeps in futex(2).
//
// Meets the requirements of Lockable, for std::lock_guard and std::unique_lock; not recursive. Only
// for threads of one process. After fork(2) the child may begin it anew (std::construct_at).
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

class QuickMutex {
 public:
  constexpr QuickMutex() = default;
  QuickMutex(const QuickMutex&) = delete;
  QuickMutex& operator=(const QuickMutex&) = delete;

  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() {
    std::uint32_t expected = free;
    return state_.compare_exchange_strong(expected, held, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(free, std::memory_order_release) == awaited) [[unlikely]]
      wake();
  }

 private:
  static constexpr std::uint32_t free = 0;
  static constexpr std::uint32_t held = 1;
  static constexpr std::uint32_t awaited = 2;  // held, and other threads may sleep until it is free

  void wait();
  void wake();

  std::atomic<std::uint32_t> state_{free};  // the word of futex(2)
};

}  // namespace weft
