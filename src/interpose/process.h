// What belongs to the whole process: its settings, threads, messages, and its end.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "weft/stream.hpp"

namespace weft::interpose {

// WEFT_SOCKETS=fallback: peers that speak plain TCP are served by the kernel.
[[nodiscard]] bool tcp_fallback_allowed();
// False with WEFT_SAME_HOST=off: all streams use TCP, also between processes of this host.
[[nodiscard]] bool may_leave_tcp();
// False if all connections are to be streams: where the user says so (WEFT_SOCKETS=always), watches
// or disturbs what the device does, or has chosen how processes of one host connect.
[[nodiscard]] bool may_leave_to_kernel();
// The user delays what comes from peers: WEFT_FAULT, WEFT_LINK.
[[nodiscard]] bool requests_may_be_delayed();
// WEFT_VERBOSE: each connection is to be explained.
[[nodiscard]] bool is_verbose();
// Writes "weft: SENTENCE" to the standard error.
void print_notice(const std::string& sentence);

// Calls it in a thread with all signals blocked (see IdleThreads). Throws Error.
void start_thread(void (*run)(void*), void* argument);
template <typename Call>
void start_thread(Call call) {
  auto kept = std::make_unique<Call>(std::move(call));
  start_thread(
      [](void* argument) {
        const std::unique_ptr<Call> owned(static_cast<Call*>(argument));
        (*owned)();
      },
      kept.get());
  (void)kept.release();  // the thread owns it
}

// Delays the end of the process while it exists, for some seconds at most.
class ExitHold {
 public:
  struct Count;
  ExitHold();
  ~ExitHold();
  ExitHold(const ExitHold&) = delete;
  ExitHold& operator=(const ExitHold&) = delete;

 private:
  Count* const count_;
};

// Closes the stream in a thread and delays the end of the process meanwhile. `at_once`: resets it.
void close_in_background(std::shared_ptr<stream::Stream> stream, bool at_once);

}  // namespace weft::interpose
