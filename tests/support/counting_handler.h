// A signal handler that counts.
#pragma once

#include <signal.h>

#include <atomic>

namespace weft::test {

// Is installed while it lives. One count serves all of them, and begins again with each.
class CountingHandler {
 public:
  CountingHandler(int signal, int flags) : signal_(signal) {
    handled_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { ++handled_; };
    action.sa_flags = flags;
    sigaction(signal, &action, &before_);
  }
  ~CountingHandler() { sigaction(signal_, &before_, nullptr); }
  CountingHandler(const CountingHandler&) = delete;
  CountingHandler& operator=(const CountingHandler&) = delete;

  [[nodiscard]] static int handled() { return handled_; }

 private:
  static inline std::atomic<int> handled_{0};
  int signal_;
  struct sigaction before_ {};
};

}  // namespace weft::test
