// Threads of the library must run no signal handler of the program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include "base/fault_handler.h"
#include "base/signal_handlers.h"

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
  // Whether a signal has come whose handler would have ended a call that waits: one without
  // SA_RESTART, signal(7).
  [[nodiscard]] bool hold_back_interruption() const {
    sigset_t pending;
    if (sigpending(&pending) != 0) return false;
    for (int number = 1; number <= SIGRTMAX; ++number) {
      if (sigismember(&pending, number) == 1 && sigismember(&before_, number) == 0 &&
          handler_interrupts(number)) {
        return true;
      }
    }
    return false;
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace weft
