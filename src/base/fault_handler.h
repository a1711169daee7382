// Catches the faults of guarded_memory.h: a handler for SIGSEGV and SIGBUS that continues behind a
// guarded access, and passes every other fault on to the handler that was there before.
//
// A program may install its own handler later, or block the signals in a thread; then the kernel
// would end the process. So each thread asks now and then whether our handler is in place and the
// signals are not blocked. Where that is not so, guarded accesses are made by the kernel on our
// behalf (process_vm_readv(2)), until it is so again. The handler is never installed a second time,
// because the program's own one may call it.
#pragma once

#include <signal.h>

#include <cstdint>

namespace weft {

// Installs the handler, once in a process. Until then guarded accesses are plain ones. Thread safe.
void catch_faults();

// Makes each thread check again before its next guarded access, at most every 10 ms. `now_ns`: of a
// clock that does not go back. Thread safe.
void recheck_faults(std::uint64_t now_ns);

// All signals but those of a fault: what a thread of the library blocks. A fault whose signal is
// blocked ends the process.
[[nodiscard]] sigset_t signals_but_faults();

}  // namespace weft
