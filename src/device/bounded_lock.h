// A lock that is taken for a report, when waiting for ever would hang the process.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

namespace weft::device {

// Locks of the device are held for microseconds only, so a thread that holds one for 0.2 s is
// stopped for good, or is the calling thread. std::mutex has no timed lock, so this retries once
// per millisecond, and some hundred times at once: a thread that posts without pause releases the
// lock of its queue pair only for moments. False: not locked.
template <typename Mutex>
bool lock_for_a_while(std::unique_lock<Mutex>& lock) {
  constexpr int tries = 200;
  constexpr int at_once = 500;
  for (int i = 0; i < tries; ++i) {
    for (int j = 0; j < at_once; ++j) {
      if (lock.try_lock()) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace weft::device
