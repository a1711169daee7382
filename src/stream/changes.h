// Wakes the calls of a stream that wait for the stream thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/event_fd.h"
#include "stream/stream_thread.h"

namespace weft::stream::detail {

// A condition variable; but a call that may lead does the work of the stream thread while it waits,
// so that no event goes through that thread first, unless the thread is wanted for others
// (observed.h) or other calls sleep. In a simulation, where a program must hand over to others
// while it waits, it is a descriptor.
class Changes {
 public:
  Changes();
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  // With the lock held under which the state has changed.
  void notify_all() noexcept;
  // Waits for a notification, without limit where there is no timeout. May return without one.
  void wait(std::unique_lock<std::mutex>& lock, std::optional<std::chrono::milliseconds> timeout);

 private:
  using Timeout = std::optional<std::chrono::milliseconds>;
  [[nodiscard]] bool lead(std::unique_lock<std::mutex>& lock, Timeout timeout);

  std::condition_variable changed_;
  StreamThread* led_ = nullptr;  // by a call that waits, until it wakes up
  std::atomic<bool> notified_{false};
  std::optional<EventFd> simulated_;
};

}  // namespace weft::stream::detail
