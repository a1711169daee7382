// What signal handlers do to a call that waits.
#include "base/signal_handlers.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include "base/undisturbed.h"

namespace weft {
namespace {

// A handler that does nothing, as long as this lives.
class Handler {
 public:
  Handler(int signal, int flags) : signal_(signal) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = flags;
    sigaction(signal, &action, &before_);
  }
  ~Handler() { sigaction(signal_, &before_, nullptr); }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;

 private:
  int signal_;
  struct sigaction before_ {};
};

TEST(SignalHandlers, AreOfTwoKinds) {
  EXPECT_FALSE(handlers_of_thread().restart);
  EXPECT_FALSE(handlers_of_thread().interrupt);
  const Handler first(SIGUSR1, SA_RESTART);
  EXPECT_TRUE(handlers_of_thread().restart);
  EXPECT_FALSE(handlers_of_thread().mixed());
  EXPECT_FALSE(handler_interrupts(SIGUSR1));
  const Handler second(SIGUSR2, 0);
  EXPECT_TRUE(handlers_of_thread().mixed());
  EXPECT_TRUE(handler_interrupts(SIGUSR2));
  EXPECT_FALSE(handler_interrupts(SIGHUP));
}

TEST(SignalHandlers, OfBlockedSignalsAndOfFaultsDoNotCount) {
  const Handler fault(SIGFPE, 0);
  const Handler blocked(SIGUSR2, 0);
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  EXPECT_FALSE(handlers_of_thread().interrupt);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_TRUE(handlers_of_thread().interrupt);
}

TEST(SignalHandlers, OnlyThoseThatInterruptCountWhileSignalsAreBlocked) {
  const Handler restarts(SIGUSR1, SA_RESTART);
  const Handler interrupts(SIGUSR2, 0);
  const Undisturbed undisturbed;
  EXPECT_FALSE(undisturbed.holds_back_interruption());
  pthread_kill(pthread_self(), SIGUSR1);
  EXPECT_FALSE(undisturbed.holds_back_interruption());
  pthread_kill(pthread_self(), SIGUSR2);
  EXPECT_TRUE(undisturbed.holds_back_interruption());
}

// The program would not have handled it either.
TEST(SignalHandlers, WhatTheProgramHasBlockedDoesNotCount) {
  const Handler interrupts(SIGUSR2, 0);
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  pthread_kill(pthread_self(), SIGUSR2);
  EXPECT_FALSE(Undisturbed().holds_back_interruption());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace weft
