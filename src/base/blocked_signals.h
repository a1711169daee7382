// Threads of the library must run no signal handler of the program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include "base/fault_handler.h"

namespace weft {

// Blocks all signals of the calling thread but those of faults, as long as this lives. A thread
// that is created meanwhile inherits that, so signal handlers run in threads of the program only.
class BlockedSignals {
 public:
  BlockedSignals() {
    const sigset_t blocked = signals_but_faults();
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // Whether a signal has come that the thread would have handled otherwise.
  [[nodiscard]] bool hold_back_any() const {
    sigset_t pending;
    if (sigpending(&pending) != 0) return false;
    for (int number = 1; number <= SIGRTMAX; ++number) {
      if (sigismember(&pending, number) == 1 && sigismember(&before_, number) == 0) return true;
    }
    return false;
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace weft
