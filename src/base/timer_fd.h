// A timer with a descriptor: timerfd(2), or in a simulation one that its clock makes readable.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/descriptor.h"
#include "base/simulated_kernel.h"

namespace weft {

// Its descriptor is readable from the time on, until the time is set again or drain(). Non-blocking
// and close-on-exec. Outside of a simulation set() may be called by several threads.
class TimerFd {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Takes no descriptor where the process has none left: see valid(); errno has the reason.
  TimerFd();

  [[nodiscard]] bool valid() const { return get() >= 0; }
  [[nodiscard]] int get() const { return simulated_ ? simulated_->event.get() : fd_.get(); }
  // A time of steady_now(); nothing: never.
  void set(std::optional<Time> at);
  void drain() const noexcept;

 private:
  Descriptor fd_;
  std::shared_ptr<SimulatedTimer> simulated_;  // in a simulation
};

}  // namespace weft
