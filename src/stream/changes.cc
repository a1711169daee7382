#include "stream/changes.h"

#include <poll.h>

#include "base/simulated_kernel.h"
#include "provider/shared.h"

namespace weft::stream::detail {

Changes::Changes() {
  if (SimulatedKernel::current()) simulated_.emplace();
}

void Changes::notify_all() noexcept {
  if (simulated_) simulated_->signal();
  changed_.notify_all();
}

void Changes::wait(std::unique_lock<std::mutex>& lock,
                   std::optional<std::chrono::milliseconds> timeout) {
  if (!simulated_) {
    if (!timeout) return changed_.wait(lock);
    changed_.wait_for(lock, *timeout);
    return;
  }
  // Before the lock is released, under which notifications come.
  simulated_->drain();
  lock.unlock();
  pollfd entry{.fd = simulated_->get(), .events = POLLIN, .revents = 0};
  (void)provider::wait({&entry, 1}, timeout ? static_cast<int>(timeout->count()) : -1);
  lock.lock();
}

}  // namespace weft::stream::detail
