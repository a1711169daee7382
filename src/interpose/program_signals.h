// The signal handlers of the program run between the calls of this library and while these wait,
// but not within their work. A handler may make such calls itself (signal-safety(7) allows
// close(2), send(2), _exit(2) and others), or leave the call by siglongjmp(3); and the work that it
// has interrupted may hold a lock.
//
// A signal that comes within the work goes back to the kernel, and the thread blocks all signals
// until the work is done. So it costs system calls only where a signal comes. Signals of faults and
// of abort(3) are left alone: their handlers run at once.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>

namespace weft::interpose {

namespace detail {

// Of the thread. A handler changes it between any two instructions, no other thread does.
struct ThreadSignals {
  std::atomic<int> depth{0};  // of calls; 0 while one of them waits
  std::atomic<bool> held{false};
  std::atomic<std::uint64_t> mask_before{0};  // of the thread, while signals are held
  std::atomic<unsigned> handlers{0};          // that have run in this thread
  std::atomic<unsigned> without_restart{0};   // those of them without SA_RESTART
};
// The library is loaded with the program, so the variable is at a fixed place of each thread.
extern constinit thread_local ThreadSignals thread_signals
    __attribute__((tls_model("initial-exec")));

// Ends the blocking of signals: handlers of those that were held run in here.
void release_signals();

// Not one atomic operation, because a handler leaves the number as it has found it.
inline void add_calls(int calls) {
  auto& depth = thread_signals.depth;
  depth.store(depth.load(std::memory_order_relaxed) + calls, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace detail

// While one exists, the thread is within the work of a call. They may be nested.
class InCall {
 public:
  InCall() { detail::add_calls(1); }
  ~InCall() {
    detail::add_calls(-1);
    auto& signals = detail::thread_signals;
    if (signals.held.load(std::memory_order_relaxed) &&
        signals.depth.load(std::memory_order_relaxed) == 0) [[unlikely]] {
      detail::release_signals();
    }
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

  // Signals have come since the outermost call began.
  [[nodiscard]] static bool holds_signals() {
    return detail::thread_signals.held.load(std::memory_order_relaxed);
  }
};

// While one exists, the call waits in the kernel: handlers run, also those that were held. No lock
// may be held.
class Waiting {
 public:
  Waiting();
  // With the mask that the wait itself uses, as ppoll(2): for handlers of signals that only this
  // mask lets through.
  explicit Waiting(const sigset_t* mask);
  ~Waiting() { detail::thread_signals.depth.store(depth_, std::memory_order_relaxed); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Handlers of signals that were held have run, and so the wait must not begin: recv(2) and others
  // end with EINTR behind a handler without SA_RESTART, poll(2) behind each one (signal(7)).
  [[nodiscard]] bool ends_receiving() const { return ended_receiving_; }
  [[nodiscard]] bool ends_polling() const { return ended_polling_; }

 private:
  const int depth_;
  bool ended_receiving_ = false;
  bool ended_polling_ = false;
};

// The signals that the program blocks in this thread. For waits within a call: a signal that comes
// then ends the wait, and its handler runs behind the call.
[[nodiscard]] sigset_t program_mask();

// Around fork(2), in the thread that calls it: handlers run when both are done.
void hold_signals_before_fork();
void release_signals_in_parent();
void release_signals_in_child();

}  // namespace weft::interpose
