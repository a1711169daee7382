// How a program that polls gets the progress thread out of its way.
//
// The thread stands by once it finds a descriptor ready that a program serves itself. A program
// that is always faster leaves none ready: the kernel wakes the thread for each message, which
// finds nothing and sleeps again, and no work can be deferred to a thread that does not stand by.
// In that state each message costs several microseconds more, and nothing ends it. So the program
// asks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace weft::device {

// ask() may be called by any thread, the rest by the progress thread.
class StandByRequest {
 public:
  // True if the progress thread is to be woken. False while a request is under way, and for a while
  // after the thread has stood by for no good.
  [[nodiscard]] bool ask(std::uint64_t now_ns) {
    if (made_.load(std::memory_order_relaxed)) return false;
    if (now_ns < not_before_ns_.load(std::memory_order_relaxed)) return false;
    return !made_.exchange(true, std::memory_order_relaxed);
  }
  // Whether there was a request. It is over with that.
  [[nodiscard]] bool take() {
    return made_.load(std::memory_order_relaxed) &&
           made_.exchange(false, std::memory_order_relaxed);
  }
  // The thread has stood by for that time, because of a request or not. To a program that soon
  // stops polling a request brings nothing, and it costs two changes of threads. So it may ask ever
  // less often.
  void stood_by(std::uint64_t began_ns, std::uint64_t ended_ns) {
    pause_ns_ = ended_ns - began_ns < worth_ns
                    ? std::clamp(2 * pause_ns_, shortest_pause_ns, longest_pause_ns)
                    : 0;
    not_before_ns_.store(ended_ns + pause_ns_, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t worth_ns = 1'000'000;
  static constexpr std::uint64_t shortest_pause_ns = 250'000;
  static constexpr std::uint64_t longest_pause_ns = 4'000'000;

  std::atomic<bool> made_{false};
  std::atomic<std::uint64_t> not_before_ns_{0};
  std::uint64_t pause_ns_ = 0;
};

}  // namespace weft::device
