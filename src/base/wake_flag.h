// Lets one thread sleep until another one wants it, or for a while. As a flag with a condition
// variable, with fewer system calls: in glibc each timed wait that ends by its timeout unlocks the
// mutex by one more futex(2), because another thread might wait for it.
//
// set() may be called by any thread, sleep() by one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

class WakeFlag {
 public:
  // Ends the sleep that is under way, or the next one at once. A system call only in the first
  // case.
  void set() {
    if (state_.exchange(is_raised, std::memory_order_acq_rel) == awaited) wake();
  }
  // Whether a sleep would end at once. Any thread.
  [[nodiscard]] bool is_set() const { return state_.load(std::memory_order_acquire) == is_raised; }
  // As sleep(), but does not wait.
  [[nodiscard]] bool take() {
    return state_.exchange(is_clear, std::memory_order_acq_rel) == is_raised;
  }
  // Returns whether the flag was set, and resets it; at once if it is set already. May return false
  // early where a signal comes.
  [[nodiscard]] bool sleep(std::chrono::nanoseconds longest);

 private:
  static constexpr std::uint32_t is_clear = 0;
  static constexpr std::uint32_t is_raised = 1;
  static constexpr std::uint32_t awaited = 2;

  void wake();

  std::atomic<std::uint32_t> state_{is_clear};  // the word of futex(2)
};

}  // namespace weft
