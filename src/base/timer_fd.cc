#include "base/timer_fd.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/duration.h"
#include "base/own_descriptors.h"

namespace weft {
namespace {

// timerfd_settime(2) disarms the timer for 0.
constexpr std::chrono::nanoseconds at_once{1};

}  // namespace

TimerFd::TimerFd() {
  if (SimulatedKernel::current()) {
    simulated_ = std::make_shared<SimulatedTimer>();
  } else {
    fd_.reset(
        own_descriptors::moved_high(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  }
}

void TimerFd::set(std::optional<Time> at) {
  std::chrono::nanoseconds since{0};
  if (at) since = std::max(std::chrono::nanoseconds(at->time_since_epoch()), at_once);
  if (!simulated_) {
    const itimerspec when{{}, timespec_of(since)};
    timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    return;
  }
  simulated_->event.drain();
  simulated_->due_ns = static_cast<std::uint64_t>(since.count());
  SimulatedKernel* const kernel = SimulatedKernel::current();
  if (kernel && at) kernel->start(simulated_);
}

void TimerFd::drain() const noexcept {
  if (simulated_) return simulated_->event.drain();
  std::uint64_t ignored = 0;
  [[maybe_unused]] const auto got = read(fd_.get(), &ignored, sizeof ignored);
}

}  // namespace weft
