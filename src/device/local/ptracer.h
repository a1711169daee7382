// Which other process may reach the memory of this one, where Yama restricts that.
//
// With kernel.yama.ptrace_scope 1, the default of Ubuntu, a process reaches the memory of its
// descendants, and of a process that names it by prctl(2), PR_SET_PTRACER. A process names one
// other at a time, whose descendants are named with it, or all.
#pragma once

#include <sys/types.h>

#include "device/settings.h"

namespace weft::device {

// Lets `process`, which is about to connect, reach the memory of this process. The first one that
// is named keeps that until it ends, because each connection to it relies on it; others are not
// named meanwhile. Does nothing where the kernel needs no name, or heeds none. Thread-safe.
void name_ptracer(pid_t process, PtracerMode mode);

}  // namespace weft::device
