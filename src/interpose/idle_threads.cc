#include "interpose/idle_threads.h"

#include <atomic>
#include <system_error>

#include "base/thread.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// Further threads end when they are done.
constexpr std::size_t max_idle = 8;

constinit std::atomic<IdleThreads*> current{nullptr};

}  // namespace

IdleThreads& idle_threads() {
  IdleThreads* known = current;
  if (!known) {
    auto* const made = new IdleThreads();  // never deleted: its threads use it to the very end
    if (current.compare_exchange_strong(known, made)) return *made;
    delete made;
  }
  return *known;
}

// The parent's object is left alone: another thread may have held its lock at fork(2).
void forget_idle_threads() {
  current = nullptr;
}

void IdleThreads::start(Work work) {
  const std::lock_guard lock(mutex_);
  // Each work that waits needs an idle thread of its own, because work may block without limit.
  waiting_.push_back(work);
  if (waiting_.size() <= idle_) {
    changed_.notify_one();
    return;
  }
  try {
    create();
  } catch (const Error&) {
    waiting_.pop_back();
    throw;
  }
}

// With mutex_ held. The new thread counts as idle until it has taken its work.
void IdleThreads::create() {
  try {
    Thread([this] { run(); }).detach();
  } catch (const std::system_error& failure) {
    throw Error(failure.code().value(), "no thread for a socket");
  }
  ++idle_;
}

void IdleThreads::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    // idle_ counts the threads that can take work: create() has counted a new thread already, so
    // each thread subtracts itself here, with the lock held.
    const Work work = waiting_.front();
    waiting_.pop_front();
    --idle_;
    lock.unlock();
    work.run(work.argument);
    lock.lock();
    if (idle_ >= max_idle) return;
    ++idle_;
  }
}

}  // namespace weft::interpose
