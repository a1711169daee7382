// The part of libweft-node.so for programs that handle SIGTRAP themselves while `weft run --check`
// has a handler for it: see base/trap_action.h. Otherwise the functions are those of the C library.
#include "base/trap_action.h"

#include "interpose/next.h"

#define WEFT_NODE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<weft::TrapAction*> kept{nullptr};

weft::TrapAction* action_of(int signal) {
  return signal == SIGTRAP ? kept.load(std::memory_order_acquire) : nullptr;
}

constinit weft::interpose::next::Function<int(int, const struct sigaction*, struct sigaction*)>
    next_sigaction{"sigaction"};
constinit weft::interpose::next::Function<sighandler_t(int, sighandler_t)> next_signal{"signal"};

}  // namespace

WEFT_NODE_EXPORT void weft_keep_trap_action(weft::TrapAction* action);
void weft_keep_trap_action(weft::TrapAction* action) {
  kept.store(action, std::memory_order_release);
}

WEFT_NODE_EXPORT int sigaction(int signal, const struct sigaction* wanted,
                               struct sigaction* before) noexcept {
  weft::TrapAction* const action = action_of(signal);
  if (!action) return next_sigaction(signal, wanted, before);
  const struct sigaction* const found = action->load();
  if (wanted) action->store(new struct sigaction(*wanted));
  if (before) *before = *found;
  return 0;
}

WEFT_NODE_EXPORT sighandler_t signal(int signal, sighandler_t handler) noexcept {
  if (!action_of(signal)) return next_signal(signal, handler);
  struct sigaction wanted {};
  struct sigaction before {};
  wanted.sa_handler = handler;
  wanted.sa_flags = SA_RESTART;
  sigemptyset(&wanted.sa_mask);
  (void)sigaction(signal, &wanted, &before);
  return before.sa_handler;
}
