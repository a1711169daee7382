#include "device/local/ptracer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/system_call.h"
#include "device/system.h"

namespace weft::device {
namespace {

// Other scopes need no name, or heed none.
bool heeds_names() {
  const sys::Descriptor file(static_cast<int>(system_call(
      SYS_openat, AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC)));
  char scope = 0;
  return file.valid() && sys::read(file.get(), &scope, 1) == 1 && scope == '1';
}

bool is_gone(pid_t process) {
  return kill(process, 0) != 0 && errno == ESRCH;
}

// Of all devices of the process. The upper half is the process that has named the lower one: the
// child of a fork(2) has named none. No lock, which another thread could hold at the fork.
std::atomic<std::uint64_t> named{0};

std::uint64_t entry_for(pid_t process) {
  return (std::uint64_t{static_cast<std::uint32_t>(getpid())} << 32) |
         static_cast<std::uint32_t>(process);
}

// Whether the place is that of the process now.
bool take_place(pid_t process) {
  const std::uint64_t wanted = entry_for(process);
  std::uint64_t seen = named.load();
  while (seen != wanted) {
    const auto other = static_cast<pid_t>(static_cast<std::uint32_t>(seen));
    if (seen == entry_for(other) && !is_gone(other)) return false;
    if (named.compare_exchange_weak(seen, wanted)) return true;
  }
  return true;
}

}  // namespace

// The call is repeated for a process that is named already: another thread may be about to make it.
void name_ptracer(pid_t process, PtracerMode mode) {
  static const bool heeded = heeds_names();
  if (!heeded || mode == PtracerMode::off || process <= 0) return;
  if (mode == PtracerMode::any) {
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  } else if (take_place(process)) {
    (void)prctl(PR_SET_PTRACER, static_cast<unsigned long>(process), 0, 0, 0);
  }
}

}  // namespace weft::device
