// How many queue pairs of this process receive messages that the kernel does not announce, because
// their peers write them to shared memory.
#pragma once

#include <atomic>
#include <cstddef>

namespace weft::device {

// Polls look at such queue pairs one by one. Where there is none, a poll of a queue with thousands
// of members must not touch the memory of each of them. Thread-safe.
class Unannounced {
 public:
  // A queue pair, which is announced at first, changes or is destroyed.
  static void note(bool was_announced, bool is_announced) {
    if (was_announced == is_announced) return;
    is_announced ? count_.fetch_sub(1) : count_.fetch_add(1);
  }
  [[nodiscard]] static bool any() { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  static constinit inline std::atomic<std::size_t> count_{0};
};

}  // namespace weft::device
