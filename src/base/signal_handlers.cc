#include "base/signal_handlers.h"

#include <pthread.h>
#include <signal.h>

#include <array>
#include <optional>

namespace weft {
namespace {

// The flags of its handler. The C library keeps some numbers to itself, and answers EINVAL.
std::optional<int> flags_of_handler(int signal) {
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_DFL ||
      action.sa_handler == SIG_IGN) {
    return std::nullopt;
  }
  return action.sa_flags;
}

}  // namespace

bool handler_interrupts(int signal) {
  const auto flags = flags_of_handler(signal);
  return flags && (*flags & SA_RESTART) == 0;
}

SignalHandlers handlers_of_thread() {
  constexpr std::array raised_by_instructions{SIGILL, SIGTRAP, SIGABRT, SIGBUS,
                                              SIGFPE, SIGSEGV, SIGSYS};
  sigset_t left_out;
  pthread_sigmask(SIG_SETMASK, nullptr, &left_out);
  for (const int signal : raised_by_instructions) sigaddset(&left_out, signal);
  SignalHandlers all;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&left_out, signal) == 1) continue;
    const auto flags = flags_of_handler(signal);
    if (!flags) continue;
    ((*flags & SA_RESTART) != 0 ? all.restart : all.interrupt) = true;
  }
  return all;
}

}  // namespace weft
