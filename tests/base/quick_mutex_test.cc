#include "base/quick_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {
namespace {

TEST(QuickMutex, IsHeldByOneAtATime) {
  QuickMutex mutex;
  {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(mutex.try_lock());
  }
  ASSERT_TRUE(mutex.try_lock());
  mutex.unlock();
}

// More threads than processors, so that some of them sleep and have to be woken.
TEST(QuickMutex, KeepsThreadsApartAndLosesNone) {
  constexpr int threads = 8;
  constexpr int turns = 20'000;
  QuickMutex mutex;
  int counted = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      for (int turn = 0; turn < turns; ++turn) {
        const std::lock_guard lock(mutex);
        ++counted;
        // Gives up the processor with the lock now and then, so that others find it held.
        if (turn % 100 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(counted, threads * turns);
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

// A thread that is about to sleep may miss an unlock that is under way. The holder gives up the
// lock at any time, and each thread ends only if no wake-up is lost.
TEST(QuickMutex, WakesAThreadThatIsAboutToSleep) {
  constexpr int turns = 3'000;
  QuickMutex mutex;
  std::atomic<int> asked{0};
  std::thread waiter([&] {
    for (int turn = 1; turn <= turns; ++turn) {
      while (asked.load() < turn) std::this_thread::yield();
      const std::lock_guard lock(mutex);
    }
  });
  for (int turn = 1; turn <= turns; ++turn) {
    const std::lock_guard lock(mutex);
    asked = turn;
    // From less than the looks before the sleep to more than its beginning.
    for (int i = 0; i < turn * 7 % 20'000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  waiter.join();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(QuickMutex, LeavesErrnoAlone) {
  QuickMutex mutex;
  mutex.lock();
  int found = 0;
  std::thread waiter([&] {
    errno = ENOTTY;
    const std::lock_guard lock(mutex);
    found = errno;
  });
  std::this_thread::yield();
  errno = ENOTTY;
  mutex.unlock();
  EXPECT_EQ(errno, ENOTTY);
  waiter.join();
  EXPECT_EQ(found, ENOTTY);
}

}  // namespace
}  // namespace weft
