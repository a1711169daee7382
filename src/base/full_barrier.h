// Memory barriers, also for ThreadSanitizer, which has no fences.
#pragma once

#include <atomic>

#if !defined(__SANITIZE_THREAD__) && defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

namespace weft {

// No load or store of this thread moves across it, in either direction. For flags and counters that
// two sides look at after each has written its own.
inline void full_barrier() {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer has no fences. An operation that reads and writes is one for the processor.
  static constinit std::atomic<unsigned> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The stores of this thread that come before it are visible before those behind it. On x86-64 it
// takes no instruction.
inline void store_barrier() {
#if defined(__SANITIZE_THREAD__)
  std::atomic_signal_fence(std::memory_order_release);
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace weft
