// Lets an application thread that blocks in poll(2) run an event loop meanwhile, in place of the
// loop's own thread. WaitLeader decides when it may.
#pragma once

#include <poll.h>
#include <signal.h>

#include <cstdint>
#include <optional>
#include <span>

namespace weft {

// What an event loop offers to such a thread. Times are those of CLOCK_MONOTONIC, in nanoseconds.
class WaitLoop {
 public:
  using Time = std::uint64_t;

  // Runs the timers that have expired. Returns when the next one expires, if there is one.
  virtual std::optional<Time> run_timers() = 0;
  // Readable while dispatch_ready() has something to do.
  [[nodiscard]] virtual int descriptor() const = 0;
  // Handles all events that are ready. Does not block.
  virtual void dispatch_ready() = 0;
  // As ppoll(2), until a time: returns the number of ready entries, 0 at that time, or -errno.
  [[nodiscard]] virtual int sleep(std::span<pollfd> entries, std::optional<Time> until,
                                  const sigset_t* mask) = 0;

 protected:
  ~WaitLoop() = default;
};

// Blocks as ppoll(2) does and runs the loop meanwhile. Returns what WaitLoop::sleep() returns.
[[nodiscard]] int run_wait_loop(WaitLoop& loop, std::span<pollfd> entries,
                                std::optional<WaitLoop::Time> until, const sigset_t* mask);

}  // namespace weft
