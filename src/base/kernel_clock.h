// The clocks of the kernel as one number.
#pragma once

#include <time.h>

#include <cstdint>

namespace weft {

// In nanoseconds since the clock's beginning (clock_gettime(2)); for CLOCK_REALTIME that is 1970.
// libc reads these clocks from memory (vdso), without a system call, on common machines.
inline std::uint64_t kernel_clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace weft
