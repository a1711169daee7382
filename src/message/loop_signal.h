// LoopSignal: a descriptor that makes an event loop, or another loop that watches it, come to its
// next turn.
#pragma once

#include <atomic>

#include "base/event_fd.h"

namespace weft::message::detail {

// Any thread, but for clear(), which is the loop's.
class LoopSignal {
 public:
  [[nodiscard]] bool valid() const { return event_.valid(); }
  [[nodiscard]] int fd() const { return event_.get(); }

  // Makes the descriptor readable. The flag saves the system call while it is readable already.
  void raise() noexcept {
    if (!raised_.exchange(true)) event_.signal();
  }
  // The same where another loop watches. This loop itself sees what is due before it sleeps.
  void raise_outside() noexcept {
    if (watched_) raise();
  }
  [[nodiscard]] bool is_raised() const { return raised_; }
  // After the drain. A signal in between writes nothing, but what it announces is handled in the
  // turn that has called this.
  void clear() noexcept {
    event_.drain();
    raised_ = false;
  }

  // From now on another loop watches. What is due already makes it readable as well: the signal may
  // be one too many.
  void watch() noexcept {
    if (!watched_.exchange(true)) raise();
  }
  [[nodiscard]] bool is_watched() const { return watched_; }

 private:
  EventFd event_;
  std::atomic<bool> raised_{false};
  std::atomic<bool> watched_{false};
};

}  // namespace weft::message::detail
