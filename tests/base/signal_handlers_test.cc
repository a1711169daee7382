// What signal handlers do to a call that waits.
#include "base/signal_handlers.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/undisturbed.h"
#include "base/write_signals.h"
#include "support/counting_handler.h"
#include "support/refuse.h"

namespace weft {
namespace {

using test::CountingHandler;

// Of the calling thread, while it lives.
class BlockedSignal {
 public:
  explicit BlockedSignal(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~BlockedSignal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignal(const BlockedSignal&) = delete;
  BlockedSignal& operator=(const BlockedSignal&) = delete;

 private:
  sigset_t before_{};
};

TEST(SignalHandlers, AreOfTwoKinds) {
  EXPECT_FALSE(handlers_of_thread().restart);
  EXPECT_FALSE(handlers_of_thread().interrupt);
  const CountingHandler first(SIGUSR1, SA_RESTART);
  EXPECT_TRUE(handlers_of_thread().restart);
  EXPECT_FALSE(handlers_of_thread().mixed());
  EXPECT_FALSE(handler_interrupts(SIGUSR1));
  const CountingHandler second(SIGUSR2, 0);
  EXPECT_TRUE(handlers_of_thread().mixed());
  EXPECT_TRUE(handler_interrupts(SIGUSR2));
  EXPECT_FALSE(handler_interrupts(SIGHUP));
}

TEST(SignalHandlers, OfBlockedSignalsAndOfFaultsDoNotCount) {
  const CountingHandler fault(SIGFPE, 0);
  const CountingHandler other(SIGUSR2, 0);
  {
    const BlockedSignal blocked(SIGUSR2);
    EXPECT_FALSE(handlers_of_thread().interrupt);
  }
  EXPECT_TRUE(handlers_of_thread().interrupt);
}

TEST(SignalHandlers, OnlyThoseThatInterruptCountWhileSignalsAreBlocked) {
  const CountingHandler restarts(SIGUSR1, SA_RESTART);
  const CountingHandler interrupts(SIGUSR2, 0);
  const Undisturbed undisturbed;
  EXPECT_FALSE(undisturbed.holds_back_interruption());
  pthread_kill(pthread_self(), SIGUSR1);
  EXPECT_FALSE(undisturbed.holds_back_interruption());
  pthread_kill(pthread_self(), SIGUSR2);
  EXPECT_TRUE(undisturbed.holds_back_interruption());
}

// The program would not have handled it either.
TEST(SignalHandlers, WhatTheProgramHasBlockedDoesNotCount) {
  const CountingHandler interrupts(SIGUSR2, 0);
  const BlockedSignal blocked(SIGUSR2);
  pthread_kill(pthread_self(), SIGUSR2);
  EXPECT_FALSE(Undisturbed().holds_back_interruption());
}

// Runs `test` in a thread that the kernel refuses rt_sigpending(2).
void run_without_sigpending(const std::function<void()>& test) {
  const bool possible = test::run_without({SYS_rt_sigpending}, EPERM, [&] {
    sigset_t pending;
    EXPECT_NE(sigpending(&pending), 0);
    test();
  });
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
}

// Whether it came cannot be known; its handler runs all the same.
TEST(SignalHandlers, AnInterruptionCannotBeSeenWithoutRtSigpending) {
  const CountingHandler interrupts(SIGUSR2, 0);
  run_without_sigpending([] {
    {
      const Undisturbed undisturbed;
      pthread_kill(pthread_self(), SIGUSR2);
      EXPECT_FALSE(undisturbed.holds_back_interruption());
      EXPECT_EQ(CountingHandler::handled(), 0);
    }
    EXPECT_EQ(CountingHandler::handled(), 1);
  });
}

// What the stack of this thread holds below the caller looks like a set of all signals.
[[gnu::noinline]] void fill_the_stack() {
  std::array<unsigned char, 4096> bytes;
  std::memset(bytes.data(), 0xFF, bytes.size());
  asm volatile("" : : "r"(bytes.data()) : "memory");
}

[[gnu::noinline]] void write_to(int fd) {
  const BlockedWriteSignals blocked;
  EXPECT_EQ(write(fd, "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST(SignalHandlers, AWriteRaisesNoSignalWithoutRtSigpending) {
  const CountingHandler handler(SIGPIPE, 0);
  run_without_sigpending([] {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    close(ends[0]);
    fill_the_stack();
    write_to(ends[1]);
    close(ends[1]);
  });
  EXPECT_EQ(CountingHandler::handled(), 0);
}

}  // namespace
}  // namespace weft
