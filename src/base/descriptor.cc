#include "base/descriptor.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/own_sockets.h"
#include "base/simulated_kernel.h"
#include "base/system_call.h"

namespace weft {

// Linux releases the number even if close(2) fails, so that the result carries no duty.
void CloseBySystemCall::operator()(int fd) const noexcept {
  if (SimulatedKernel::owns(fd)) [[unlikely]] {
    // After its end nothing of a simulation is left to close.
    if (SimulatedKernel* kernel = SimulatedKernel::current()) kernel->close(fd);
    return;
  }
  own_sockets::remove(fd);
  system_call(SYS_close, fd);
}

}  // namespace weft
