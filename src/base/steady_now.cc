#include "base/simulated_kernel.h"
#include "weft/deadline.hpp"

namespace weft {

std::chrono::steady_clock::time_point steady_now() {
  using Clock = std::chrono::steady_clock;
  if (const SimulatedKernel* kernel = SimulatedKernel::current()) [[unlikely]]
    return Clock::time_point(std::chrono::nanoseconds(kernel->now_ns()));
  return Clock::now();
}

}  // namespace weft
