// A mutex for locks of the data path. Lock and unlock of a free one are inline: one atomic
// operation, and where the kernel has membarrier(2) a plain store. Those of std::mutex are three
// calls and 77 instructions in glibc 2.36, with two atomic operations. A thread that has to wait
// sleeps in futex(2).
//
// Meets the requirements of Lockable, for std::lock_guard and std::unique_lock; not recursive. Only
// for threads of one process. After fork(2) the child may begin it anew (std::construct_at).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
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
  // An atomic operation takes some 20 cycles, and waits for all stores before it. The plain store
  // and the look behind it may become visible in the other order; so a thread that is going to
  // sleep makes every other thread complete what it has begun (membarrier(2)).
  void unlock() {
    if (!stores_plainly_) [[unlikely]]
      return unlock_atomically();
    // Nothing of this object is accessed behind the store: another thread may destroy it.
    const std::atomic<std::uint32_t>& waiting = waiting_here();
    state_.store(free, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake();
  }

 private:
  static constexpr std::uint32_t free = 0;
  static constexpr std::uint32_t held = 1;
  static constexpr std::uint32_t awaited = 2;  // only where unlock_atomically() is used: as held,
                                               // and other threads may sleep until it is free
  static constexpr std::size_t line_bytes = 64;
  static constexpr std::size_t counts = 64;
  // Of threads that wait for one of the mutexes at certain addresses.
  struct alignas(line_bytes) Waiting {
    std::atomic<std::uint32_t> count{0};
  };
  friend struct QuickMutexStart;

  void wait();
  void wait_for_plain_store();
  void wake();
  void unlock_atomically();
  [[nodiscard]] std::atomic<std::uint32_t>& waiting_here() const {
    return waiting_[reinterpret_cast<std::uintptr_t>(this) / line_bytes % counts].count;
  }

  static bool stores_plainly_;
  static std::array<Waiting, counts> waiting_;

  std::atomic<std::uint32_t> state_{free};  // the word of futex(2)
};

}  // namespace weft
