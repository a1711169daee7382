#include "base/wait_leader.h"

#include <algorithm>
#include <chrono>

namespace weft {
namespace {

// The grace period. A longer one costs the background thread fewer wake-ups, and delays events more
// if the application does not come back.
constexpr std::chrono::microseconds shortest_grace{100};
constexpr std::chrono::microseconds longest_grace{1000};

}  // namespace

bool WaitLeader::enter() {
  const std::lock_guard lock(mutex_);
  if (++waiters_ > 1 || stopped_) return false;
  // By this stand_aside() notices a leader that has left and come back meanwhile.
  ++terms_;
  has_leader_ = true;
  return true;
}

// A leader that comes and goes often must not pay for a notification each time. The background
// thread polls in its grace period and finds out by itself, unless it sleeps for the leader to
// leave or other waiters depend on it now.
void WaitLeader::leave(bool led) {
  {
    const std::lock_guard lock(mutex_);
    --waiters_;
    // A waiter that did not lead had no events to handle.
    if (!led) return;
    has_leader_ = false;
    if (!thread_aside_ || (!awaits_leave_ && waiters_ == 0)) return;
    thread_needed_ = waiters_ > 0;
  }
  // The lock is free before this, so that the thread does not wake up only to wait for it.
  changed_.notify_one();
}

// The grace period doubles while the leader comes back within it. If one leader stays for a whole
// period, the thread sleeps until that one leaves, instead of polling.
void WaitLeader::stand_aside() {
  std::unique_lock lock(mutex_);
  thread_aside_ = true;
  auto grace = shortest_grace;
  while (!thread_needed_ && !stopped_) {
    const auto terms = terms_;
    changed_.wait_for(lock, grace, [this] { return thread_needed_ || stopped_; });
    if (terms != terms_) {
      grace = std::min(grace * 2, longest_grace);
    } else if (!has_leader_) {
      break;
    } else {
      awaits_leave_ = true;
      changed_.wait(lock, [this] { return !has_leader_ || thread_needed_ || stopped_; });
      awaits_leave_ = false;
    }
  }
  // The thread handles all events from here on, and needs no second request.
  thread_needed_ = false;
  thread_aside_ = false;
}

void WaitLeader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
}

}  // namespace weft
