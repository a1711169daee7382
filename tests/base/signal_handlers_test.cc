// What signal handlers do to a call that waits.
#include "base/signal_handlers.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include "base/undisturbed.h"
#include "support/counting_handler.h"

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

}  // namespace
}  // namespace weft
