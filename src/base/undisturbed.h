// A thread of the program that does work on which others rely.
#pragma once

#include <pthread.h>

#include "base/blocked_signals.h"

namespace weft {

// As long as this lives, the calling thread runs no signal handler of the program, which might not
// return, and is not cancelled.
class Undisturbed {
 public:
  Undisturbed() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Undisturbed() { pthread_setcancelstate(before_, nullptr); }
  // Whether a handler would have run meanwhile that ends a call which waits, with EINTR.
  [[nodiscard]] bool holds_back_interruption() const { return signals_.hold_back_interruption(); }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  BlockedSignals signals_;
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace weft
