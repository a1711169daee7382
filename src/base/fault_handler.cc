#include "base/fault_handler.h"

#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "base/guarded_code.h"

namespace weft {
namespace {

constexpr std::array<int, 2> fault_signals{SIGSEGV, SIGBUS};
// 10 ms: each check of a thread costs it three system calls.
constexpr std::uint64_t recheck_ns = 10'000'000;

constinit std::atomic<std::uint64_t> rechecked_ns{0};

#if defined(WEFT_GUARDED_CODE)

struct sigaction before[2];  // what the handler found: in the order of fault_signals

// Each is written before the handler that reads it is installed.
struct sigaction& found_for(int signal) {
  return before[signal == fault_signals[0] ? 0 : 1];
}

std::uintptr_t instruction_of(const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#else
  return context.uc_mcontext.pc;
#endif
}

// No other register changes: the return address is still where the interrupted function had it, on
// top of the stack or in x30.
void continue_at(ucontext_t& context, const char* instruction) {
#if defined(__x86_64__)
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(instruction);
#else
  context.uc_mcontext.pc = reinterpret_cast<std::uintptr_t>(instruction);
#endif
}

// The instruction decides, and not the address that it has accessed: a fault of any other code at
// the same memory is passed on.
bool is_guarded(std::uintptr_t instruction) {
  return instruction >= reinterpret_cast<std::uintptr_t>(weft_guarded_begin) &&
         instruction < reinterpret_cast<std::uintptr_t>(weft_guarded_fault);
}

// Where the code that this instruction belongs to goes on after a fault; null: it is not guarded.
const char* place_after_fault(std::uintptr_t instruction) {
#if defined(WEFT_CHECKED_STORE)
  const auto is_at = [instruction](const char* place) {
    return instruction == reinterpret_cast<std::uintptr_t>(place);
  };
  // No instruction there accesses memory that can fault, so it was one of the checked store.
  if (is_at(weft_checked_interrupted)) return weft_checked_fault;
  if (is_at(weft_checked_interrupted_wide)) return weft_checked_fault_wide;
#endif
  return is_guarded(instruction) ? weft_guarded_fault : nullptr;
}

// Does what would have happened without our handler. The default action of a fault comes when its
// instruction is executed again; a signal that a process has sent must be raised again.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction found = found_for(signal);
  // The kernel would have reset the action before it called the handler.
  if ((found.sa_flags & SA_RESETHAND) != 0) found_for(signal) = {};
  if ((found.sa_flags & SA_SIGINFO) != 0) return found.sa_sigaction(signal, info, context);
  const bool sent = info->si_code <= 0;
  // Linux ends a process that ignores a real fault, so that only a signal from a process is
  // dropped.
  if (found.sa_handler == SIG_IGN && sent) return;
  if (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN) return found.sa_handler(signal);
  // Our handler is not installed again: the process is about to end.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (sent) ::raise(signal);
}

// Positive codes are faults of this instruction; others are signals that a process has sent.
void on_fault(int signal, siginfo_t* info, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  const char* const place =
      info->si_code > 0 ? place_after_fault(instruction_of(interrupted)) : nullptr;
  if (place) return continue_at(interrupted, place);
  pass_on(signal, info, context);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}

// Our handler calls the one that was found, so it keeps that one's mask and flags. Without one it
// uses an alternate stack where there is one: Go's stacks are small.
void install(int signal) {
  struct sigaction& found = found_for(signal);
  if (::sigaction(signal, nullptr, &found) != 0) return;
  struct sigaction ours = found;
  const bool handled = (found.sa_flags & SA_SIGINFO) != 0 ||
                       (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN);
  // SA_RESETHAND is not among them: pass_on() does for the other handler what the flag asks for.
  constexpr int kept = SA_ONSTACK | SA_NODEFER | SA_RESTART;
  ours.sa_flags = SA_SIGINFO | (handled ? found.sa_flags & kept : SA_ONSTACK);
  if (!handled) sigemptyset(&ours.sa_mask);
  ours.sa_sigaction = on_fault;
  ::sigaction(signal, &ours, nullptr);
}

#endif

}  // namespace

constinit std::atomic<std::uint32_t> fault_generation{0};

void catch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
#if defined(WEFT_GUARDED_CODE)
    for (const int signal : fault_signals) install(signal);
#endif
    // This comes last: a thread that sees this generation must find the handlers installed.
    fault_generation = 1;
  });
}

void recheck_faults(std::uint64_t now_ns) {
  const std::uint64_t last_ns = rechecked_ns.load(std::memory_order_relaxed);
  // Two threads may come past this at once. One generation more does no harm.
  // Clocks of the callers may differ by a little, so `now_ns` may be the smaller one.
  if (now_ns < last_ns + recheck_ns) return;
  rechecked_ns.store(now_ns, std::memory_order_relaxed);
  if (fault_generation.load(std::memory_order_relaxed) != 0) fault_generation.fetch_add(1);
}

sigset_t signals_but_faults() {
  sigset_t set;
  sigfillset(&set);
  for (const int signal : fault_signals) sigdelset(&set, signal);
  return set;
}

FaultState ask_fault_state() {
#if defined(WEFT_GUARDED_CODE)
  // Handlers are those of the process, but the mask is that of the calling thread.
  sigset_t blocked;
  if (pthread_sigmask(SIG_BLOCK, nullptr, &blocked) != 0) return FaultState::uncaught;
  for (const int signal : fault_signals) {
    struct sigaction action {};
    const bool known = ::sigaction(signal, nullptr, &action) == 0;
    if (!known || !is_ours(action) || sigismember(&blocked, signal) != 0) {
      return FaultState::uncaught;
    }
  }
  return FaultState::caught;
#else
  return FaultState::uncaught;
#endif
}

}  // namespace weft
