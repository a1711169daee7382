// How many objects of this process are observed from outside of a call: by a descriptor, a watcher
// or an event queue.
#pragma once

#include <atomic>
#include <cstddef>

namespace weft::stream::detail {

// The part of one object. A call that sleeps does the work of the stream thread only while nothing
// is observed (changes.h). When the call returns, the stream thread waits up to a millisecond
// before it works again, because the call may sleep again soon. An observer would learn of events
// that much later. any() may be called by any thread, and set() of different objects by different
// threads at once.
class Observed {
 public:
  Observed() = default;
  ~Observed() { set(false); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  void set(bool observed) {
    if (observed == observed_) return;
    observed_ = observed;
    observed ? count_.fetch_add(1) : count_.fetch_sub(1);
  }
  [[nodiscard]] static bool any() { return count_.load(std::memory_order_relaxed) != 0; }

 private:
  static constinit inline std::atomic<std::size_t> count_{0};
  bool observed_ = false;
};

}  // namespace weft::stream::detail
