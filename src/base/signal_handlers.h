// What the signal handlers of the program do to a call that waits: signal(7). read(2) goes on
// behind a handler with SA_RESTART, and ends with EINTR behind any other one; poll(2) ends behind
// both.
#pragma once

namespace weft {

// Which kinds there are.
struct SignalHandlers {
  bool restart = false;    // some have SA_RESTART
  bool interrupt = false;  // some have not
  [[nodiscard]] bool mixed() const { return restart && interrupt; }
};

// Whether a call that waits ends with EINTR behind the handler of this signal. False if it has
// none.
[[nodiscard]] bool handler_interrupts(int signal);

// Of all signals that the calling thread does not block. Those of faults and of abort(3) do not
// count, because no call that waits raises them. Some sixty system calls.
[[nodiscard]] SignalHandlers handlers_of_thread();

}  // namespace weft
