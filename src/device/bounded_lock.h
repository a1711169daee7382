// A lock that is taken at exit, when waiting for ever would hang the process.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

namespace weft::device {

// Locks of the device are held for microseconds only, so a thread that holds one for 0.2 s is
// stopped for good, or is the calling thread. std::mutex has no timed lock, so this retries once
// per millisecond. False: not locked.
inline bool lock_for_a_while(std::unique_lock<std::mutex>& lock) {
  constexpr int tries = 200;
  for (int i = 0; i < tries; ++i) {
    if (lock.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace weft::device
