#include "base/wake_flag.h"

#include <linux/futex.h>
#include <linux/time_types.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/system_call.h"

namespace weft {

// The thread announces that it waits, and the kernel compares the word again before the thread
// sleeps: a set() in between is not missed.
bool WakeFlag::sleep(std::chrono::nanoseconds longest) {
  std::uint32_t before = is_clear;
  if (state_.compare_exchange_strong(before, awaited, std::memory_order_acq_rel)) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
    // Of this call, whatever the size of time_t is for the C library.
    const __kernel_old_timespec time{.tv_sec = static_cast<__kernel_old_time_t>(seconds.count()),
                                     .tv_nsec = static_cast<long>((longest - seconds).count())};
    system_call(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, awaited, &time, nullptr, 0);
  }
  return take();
}

// Calls of verbs that wake the progress thread leave errno as it was.
void WakeFlag::wake() {
  const int kept = errno;
  system_call(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = kept;
}

}  // namespace weft
