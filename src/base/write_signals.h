// Signals that a write raises when it fails: they must not end the program that the library is in.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>
#include <initializer_list>

namespace weft {

// Blocks SIGPIPE and SIGXFSZ in the calling thread as long as this lives, and discards those that a
// write raises. The write fails with EPIPE or EFBIG instead (write(2), setrlimit(2)).
class BlockedWriteSignals {
 public:
  BlockedWriteSignals() {
    sigset_t pending;
    sigemptyset(&set_);
    // A signal that is already pending belongs to the program and stays pending. A sandbox may
    // refuse to say which are; then none is taken to be.
    sigemptyset(&pending);
    static_cast<void>(sigpending(&pending));
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) == 0) sigaddset(&set_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &old_);
  }
  ~BlockedWriteSignals() {
    const timespec at_once{};
    while (sigtimedwait(&set_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  BlockedWriteSignals(const BlockedWriteSignals&) = delete;
  BlockedWriteSignals& operator=(const BlockedWriteSignals&) = delete;

 private:
  sigset_t set_;
  sigset_t old_;
};

}  // namespace weft
