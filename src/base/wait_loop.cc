#include "base/wait_loop.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "weft/deadline.hpp"

namespace weft {
namespace {

// CLOCK_MONOTONIC, as WaitLoop has it: steady_clock of libstdc++ reads that.
WaitLoop::Time now() {
  const auto since = steady_now().time_since_epoch();
  return static_cast<WaitLoop::Time>(std::chrono::nanoseconds(since).count());
}

std::optional<WaitLoop::Time> earlier(std::optional<WaitLoop::Time> a,
                                      std::optional<WaitLoop::Time> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

// The loop's descriptor is polled together with the caller's. After events of the loop the caller's
// entries are polled once more without waiting: often these events have just made one ready.
int run_wait_loop(WaitLoop& loop, std::span<pollfd> entries, std::optional<WaitLoop::Time> until,
                  const sigset_t* mask) {
  // The entries are copied, because the caller's array has no room for that of the loop.
  std::vector<pollfd> all(entries.begin(), entries.end());
  all.push_back({loop.descriptor(), POLLIN, 0});
  const auto callers = std::span(all).first(entries.size());
  while (true) {
    int ready = loop.sleep(all, earlier(loop.run_timers(), until), mask);
    if (ready < 0) return ready;
    if (all.back().revents != 0) {
      loop.dispatch_ready();
      // The loop's own entry is not counted for the caller.
      if (--ready == 0) ready = loop.sleep(callers, 0, mask);
    }
    // A wait that a timer of the loop has ended goes on.
    if (ready != 0 || (until && now() >= *until)) {
      std::ranges::copy(callers, entries.begin());
      return ready;
    }
  }
}

}  // namespace weft
