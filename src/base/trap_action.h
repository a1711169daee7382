// The program's action for SIGTRAP, while the library has a handler of its own in the kernel. The
// handler passes on what it does not know.
//
// libweft-node.so, which `weft run` loads into each program, replaces sigaction(2) and signal(2):
// from keep_trap_action() on they read and change this action only, so that a program that
// installs its handler late replaces nothing. Without that library the kernel's action changes.
#pragma once

#include <signal.h>

#include <atomic>

namespace weft {

// Null until the library has its handler. The actions that it has pointed to are never freed,
// because a handler may be looking at one.
using TrapAction = std::atomic<const struct sigaction*>;

// The function of libweft-node.so, and its name.
using KeepTrapAction = void (*)(TrapAction* action);
inline constexpr const char* keep_trap_action = "weft_keep_trap_action";

}  // namespace weft
