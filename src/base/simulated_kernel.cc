#include "base/simulated_kernel.h"

namespace weft {
namespace {

thread_local constinit SimulatedKernel* kernel_of_thread = nullptr;

}  // namespace

constinit std::atomic<int> SimulatedKernel::entered_{0};

SimulatedKernel* SimulatedKernel::of_this_thread() {
  return kernel_of_thread;
}

bool SimulatedKernel::enter() {
  if (kernel_of_thread) return false;
  kernel_of_thread = this;
  ++entered_;
  return true;
}

void SimulatedKernel::leave() {
  if (kernel_of_thread != this) return;
  kernel_of_thread = nullptr;
  --entered_;
}

}  // namespace weft
