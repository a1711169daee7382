#include "stream/changes.h"

#include <poll.h>

#include "base/simulated_kernel.h"
#include "provider/shared.h"
#include "stream/observed.h"
#include "weft/deadline.hpp"

namespace weft::stream::detail {
namespace {

// For how long no call leads after two of them have slept at once. Once a call that leads goes on,
// the thread of the device stays away for up to a millisecond, in case the call comes back, and the
// other call would wait for it.
constexpr std::chrono::seconds crowded_for{1};

constinit std::atomic<int> sleeping{0};
constinit std::atomic<std::chrono::steady_clock::rep> crowded_until{0};

bool is_crowded() {
  return steady_now().time_since_epoch().count() < crowded_until.load(std::memory_order_relaxed);
}

// The call that leads gives up, and sleeps as the other one.
void note_crowd() {
  const auto now = steady_now().time_since_epoch();
  const auto until = (now + crowded_for).count();
  if (crowded_until.exchange(until) >= now.count()) return;
  if (StreamThread* const thread = StreamThread::existing()) thread->stop_leader();
}

// Exists while a call sleeps.
class Sleeping {
 public:
  Sleeping() {
    if (sleeping.fetch_add(1) > 0) note_crowd();
  }
  ~Sleeping() { sleeping.fetch_sub(1); }
  Sleeping(const Sleeping&) = delete;
  Sleeping& operator=(const Sleeping&) = delete;
};

}  // namespace

Changes::Changes() {
  if (SimulatedKernel::current()) simulated_.emplace();
}

void Changes::notify_all() noexcept {
  if (simulated_) simulated_->signal();
  // In a child of fork(2) the thread that led does not exist.
  if (led_ && led_ == StreamThread::existing() && !notified_.exchange(true)) led_->stop_leader();
  changed_.notify_all();
}

// Returns false where this call may not lead. The lock is not held while this thread calls the
// handlers of streams, this one among them.
bool Changes::lead(std::unique_lock<std::mutex>& lock, Timeout timeout) {
  StreamThread* const thread = StreamThread::existing();
  if (!thread || Observed::any() || is_crowded()) return false;
  const WaitLeader::Waiter waiter(thread->wait_leader());
  if (!waiter.leads()) return false;
  led_ = thread;
  notified_ = false;
  lock.unlock();
  thread->lead_until(notified_, timeout);
  lock.lock();
  led_ = nullptr;
  return true;
}

void Changes::wait(std::unique_lock<std::mutex>& lock,
                   std::optional<std::chrono::milliseconds> timeout) {
  if (!simulated_) {
    const Sleeping counted;
    if (lead(lock, timeout)) return;
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
