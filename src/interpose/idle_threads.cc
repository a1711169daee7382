#include "interpose/idle_threads.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <system_error>

#include "base/thread.h"
#include "base/wake_flag.h"
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

// Each thread sleeps on a flag of its own. Before version 2.41 of the C library, a condition
// variable that several threads wait for may lose a wake-up (its bug 25847). Then no thread would
// begin the work, and the program would wait for ever.
struct IdleThreads::Sleeper {
  WakeFlag has_work;
  Work work;  // once the flag is set
};

// A thread that becomes idle must not fail for want of memory.
IdleThreads::IdleThreads() {
  idle_.reserve(max_idle);
}

// The thread that has been idle for the shortest time gets the work: its memory is in the cache.
void IdleThreads::start(Work work) {
  Sleeper* chosen = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      chosen = idle_.back();
      idle_.pop_back();
    }
  }
  if (!chosen) return create(work);
  chosen->work = work;
  chosen->has_work.set();
}

void IdleThreads::create(Work work) {
  try {
    Thread([this, work] { run(work); }).detach();
  } catch (const std::system_error& failure) {
    throw Error(failure.code().value(), "no thread for a socket");
  }
}

void IdleThreads::run(Work work) {
  constexpr std::chrono::hours long_time{1};
  Sleeper self;
  while (true) {
    work.run(work.argument);
    {
      const std::lock_guard lock(mutex_);
      if (idle_.size() >= max_idle) return;
      idle_.push_back(&self);
    }
    while (!self.has_work.sleep(long_time)) {
    }
    work = self.work;
  }
}

}  // namespace weft::interpose
