// The lock of a queue pair as an object: functions that need the lock take it as a parameter, which
// proves that their caller holds it.
#pragma once

#include <mutex>

#include "base/quick_mutex.h"

namespace weft::device {

// Holds the lock from construction to unlock() or destruction. Not thread safe.
//
// It publishes nothing by itself: a function that may have made completions calls
// QueuePair::settle() before it returns.
class QueuePairLock {
 public:
  explicit QueuePairLock(QuickMutex& mutex) : lock_(mutex) {}
  QueuePairLock(QuickMutex& mutex, std::try_to_lock_t tag) : lock_(mutex, tag) {}

  // False after a failed attempt with std::try_to_lock, and after unlock().
  [[nodiscard]] bool owns() const { return lock_.owns_lock(); }
  void unlock() { lock_.unlock(); }

 private:
  std::unique_lock<QuickMutex> lock_;
};

}  // namespace weft::device
