#include "base/wake_flag.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace weft {
namespace {

using namespace std::chrono_literals;

TEST(WakeFlag, IsResetByTheSleepThatFindsItSet) {
  WakeFlag flag;
  flag.set();
  flag.set();
  EXPECT_TRUE(flag.sleep(1h));
  EXPECT_FALSE(flag.sleep(1us));
}

TEST(WakeFlag, EndsASleep) {
  WakeFlag flag;
  std::thread other([&] { flag.set(); });
  // A sleep may end early, but not without the flag.
  while (!flag.sleep(1h)) {
  }
  other.join();
  EXPECT_FALSE(flag.sleep(0ns));
}

// Two threads in turns, so that a wake-up that is lost would end the test only by its timeout.
TEST(WakeFlag, LosesNoWakeUp) {
  constexpr int turns = 5'000;
  WakeFlag here;
  WakeFlag there;
  std::thread other([&] {
    for (int i = 0; i < turns; ++i) {
      while (!there.sleep(1h)) {
      }
      here.set();
    }
  });
  for (int i = 0; i < turns; ++i) {
    there.set();
    while (!here.sleep(1h)) {
    }
  }
  other.join();
}

TEST(WakeFlag, LeavesErrnoAlone) {
  WakeFlag flag;
  std::thread sleeper([&] {
    while (!flag.sleep(1h)) {
    }
  });
  std::this_thread::yield();
  errno = ENOTTY;
  flag.set();
  EXPECT_EQ(errno, ENOTTY);
  sleeper.join();
}

}  // namespace
}  // namespace weft
