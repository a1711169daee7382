#include "base/event_fd.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/own_descriptors.h"
#include "base/system_call.h"

namespace weft {

// A failure leaves -1: valid(). Not blocking, because drain() is also called without a signal.
EventFd::EventFd()
    : fd_(own_descriptors::moved_high(
          static_cast<int>(system_call(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK)))) {}

// Fails only with EAGAIN at a count of 2^64 - 2, and then the descriptor is readable anyway.
void EventFd::signal() const noexcept {
  const std::uint64_t one = 1;
  system_call(SYS_write, fd_.get(), &one, sizeof one);
}

// One read takes the whole count; EAGAIN means that there was none.
void EventFd::drain() const noexcept {
  std::uint64_t count = 0;
  system_call(SYS_read, fd_.get(), &count, sizeof count);
}

}  // namespace weft
