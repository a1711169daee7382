#include "stream/changes.h"

#include <poll.h>

#include "base/simulated_kernel.h"
#include "provider/shared.h"
#include "stream/observed.h"

namespace weft::stream::detail {

Changes::Changes() {
  if (SimulatedKernel::current()) simulated_.emplace();
}

void Changes::notify_all() noexcept {
  if (simulated_) simulated_->signal();
  // In a child of fork(2) the thread that led does not exist.
  if (led_ && led_ == StreamThread::existing() && !notified_.exchange(true)) led_->stop_leader();
  changed_.notify_all();
}

// The lock is not held while this thread calls the handlers of streams, this one among them.
void Changes::lead(StreamThread& thread, std::unique_lock<std::mutex>& lock, Timeout timeout) {
  led_ = &thread;
  notified_ = false;
  lock.unlock();
  thread.lead_until(notified_, timeout);
  lock.lock();
  led_ = nullptr;
}

void Changes::wait(std::unique_lock<std::mutex>& lock,
                   std::optional<std::chrono::milliseconds> timeout) {
  if (!simulated_) {
    StreamThread* const thread = Observed::any() ? nullptr : StreamThread::existing();
    std::optional<WaitLeader::Waiter> waiter;
    if (thread) waiter.emplace(thread->wait_leader());
    if (waiter && waiter->leads()) return lead(*thread, lock, timeout);
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
