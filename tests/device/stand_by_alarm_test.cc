// The sleep of the progress thread that a program which polls prolongs.
#include "device/stand_by_alarm.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "device/system.h"
#include "support/refuse.h"

namespace weft::device {
namespace {

using namespace std::chrono_literals;
using Reason = StandByAlarm::Reason;

constexpr std::chrono::microseconds long_tick = 1h;

TEST(StandByAlarm, WhatIsSetEndsTheNextSleepOfEachKind) {
  StandByAlarm alarm;
  alarm.set();
  EXPECT_EQ(alarm.sleep(long_tick), Reason::set);
  alarm.set();
  EXPECT_EQ(alarm.sleep_on(long_tick, 0), Reason::set);
  EXPECT_EQ(alarm.sleep(1us), Reason::passed) << "it was taken back";
  EXPECT_EQ(alarm.sleep_on(1us, sys::now_ns()), Reason::missed);
}

// In turns, so that one that is lost would end the test only by its timeout. A sleep may end early.
TEST(StandByAlarm, LosesNoneThatIsSet) {
  constexpr int turns = 3'000;
  StandByAlarm alarm;
  std::atomic<int> taken{0};
  std::thread sleeper([&] {
    while (taken < turns) {
      const bool timed = taken % 2 == 0;
      const auto reason = timed ? alarm.sleep_on(long_tick, 0) : alarm.sleep(long_tick);
      if (reason == Reason::set) ++taken;
    }
  });
  for (int i = 0; i < turns; ++i) {
    alarm.set();
    while (taken <= i) std::this_thread::yield();
  }
  sleeper.join();
}

// A program that polls without pause, whatever thread ends the sleep.
TEST(StandByAlarm, LosesNoneThatIsSetWhileAnotherThreadPutsItOff) {
  constexpr int turns = 500;
  StandByAlarm alarm;
  std::atomic<bool> ended{false};
  std::atomic<int> taken{0};
  std::thread sleeper([&] {
    while (taken < turns) {
      if (alarm.sleep_on(10us, sys::now_ns()) == Reason::set) ++taken;
    }
  });
  std::thread poller([&] {
    while (!ended) (void)alarm.put_off(sys::now_ns());
  });
  for (int i = 0; i < turns; ++i) {
    alarm.set();
    while (taken <= i) std::this_thread::yield();
  }
  ended = true;
  poller.join();
  sleeper.join();
}

// Without that, it would end at least once in three times.
TEST(StandByAlarm, LastsAsLongAsItIsPutOff) {
  constexpr int times = 20;
  StandByAlarm alarm;
  std::atomic<bool> over{false};
  std::atomic<int> ends{0};
  std::thread sleeper([&] {
    while (!over) {
      if (alarm.sleep_on(1ms, sys::now_ns()) == Reason::missed) ++ends;
    }
  });
  // Again and again, since a busy machine may keep this thread from putting it off in time.
  int ended = times;
  while (ended > 0) {
    const int before = ends;
    for (int i = 0; i < times;) {
      if (alarm.put_off(sys::now_ns())) ++i;
    }
    ended = ends - before;
  }
  over = true;
  sleeper.join();  // it ends, as it is not put off any more
  EXPECT_FALSE(alarm.put_off(UINT64_MAX - 1)) << "no thread sleeps";
}

TEST(StandByAlarm, IsPutOffOnceAtATime) {
  StandByAlarm alarm;
  std::thread sleeper([&] { (void)alarm.sleep_on(long_tick, sys::now_ns()); });
  const std::uint64_t now_ns = sys::now_ns();
  const std::uint64_t later_ns = now_ns + 7'200'000'000'000;
  EXPECT_FALSE(alarm.put_off(now_ns));
  while (!alarm.put_off(later_ns)) std::this_thread::yield();
  EXPECT_FALSE(alarm.put_off(later_ns)) << "the next time has begun";
  alarm.set();
  sleeper.join();
}

// As in the child after fork(2), where no thread sleeps, although one slept in the parent.
TEST(StandByAlarm, IsSetWithoutATimerAfterItsEnd) {
  StandByAlarm alarm;
  std::thread sleeper([&] { (void)alarm.sleep_on(long_tick, sys::now_ns()); });
  while (!alarm.put_off(sys::now_ns() + 7'200'000'000'000)) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm.close();
    alarm.set();
    _exit(alarm.put_off(UINT64_MAX - 1) ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  alarm.set();
  sleeper.join();
}

TEST(StandByAlarm, WithoutTimersASleepLastsForATick) {
  const bool possible = test::run_without({SYS_timerfd_create}, ENOSYS, [] {
    StandByAlarm alarm;
    EXPECT_EQ(alarm.sleep_on(1us, sys::now_ns()), Reason::passed);
    EXPECT_FALSE(alarm.put_off(UINT64_MAX - 1));
    alarm.set();
    EXPECT_EQ(alarm.sleep_on(long_tick, 0), Reason::set);
  });
  if (!possible) GTEST_SKIP() << "this kernel filters no system calls (seccomp)";
}

}  // namespace
}  // namespace weft::device
