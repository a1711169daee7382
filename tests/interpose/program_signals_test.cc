// Signals that come within the work of a call: their handlers run when it is done.
#include "interpose/program_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

#include "support/refuse.h"

namespace weft::interpose {
namespace {

constexpr int payload = 4711;

// What the handler was given.
std::atomic<int> handled{0};
std::atomic<int> code{0};
std::atomic<int> value{0};

void on_user_signal(int /*signal*/, siginfo_t* details, void* /*context*/) {
  ++handled;
  code = details->si_code;
  value = details->si_value.sival_int;
}

// sigaction() is the interposer's in this program.
class ProgramSignals : public testing::Test {
 protected:
  void SetUp() override {
    handled = code = value = 0;
    struct sigaction action {};
    action.sa_sigaction = on_user_signal;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  }
  void TearDown() override { signal(SIGUSR1, SIG_DFL); }

  // Runs `test` in a thread which alone takes SIGUSR1, and is refused these calls.
  static void run_without(const std::vector<test::RefusedCall>& calls,
                          const std::function<void()>& test) {
    sigset_t mine;
    sigset_t before;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mine, &before);
    bool possible = true;
    std::thread([&] {
      pthread_sigmask(SIG_UNBLOCK, &mine, nullptr);
      if (!calls.empty()) possible = test::refuse(calls, EPERM);
      if (possible) test();
    }).join();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!possible) GTEST_SKIP() << "no seccomp filters here";
  }
  // With details, to the process: one thread does not block it. The kernel delivers it before the
  // call returns.
  static void raise_with_details() {
    sigval sent{};
    sent.sival_int = payload;
    ASSERT_EQ(sigqueue(getpid(), SIGUSR1, sent), 0);
  }
};

TEST_F(ProgramSignals, KeepTheirDetailsUntilACallHasEnded) {
  run_without({}, [] {
    {
      const InCall call;
      raise_with_details();
      EXPECT_EQ(handled, 0);
      EXPECT_TRUE(InCall::holds_signals());
    }
    EXPECT_EQ(handled, 1);
    EXPECT_FALSE(InCall::holds_signals());
  });
  EXPECT_EQ(code, SI_QUEUE);
  EXPECT_EQ(value, payload);
}

TEST_F(ProgramSignals, LoseTheirDetailsWithoutRtTgsigqueueinfo) {
  run_without({SYS_rt_tgsigqueueinfo}, [] {
    {
      const InCall call;
      raise_with_details();
      EXPECT_EQ(handled, 0);
      EXPECT_TRUE(InCall::holds_signals());
    }
    EXPECT_EQ(handled, 1);
    EXPECT_EQ(code, SI_TKILL);
    EXPECT_EQ(value, 0);
    // Where the kernel need not be asked, nothing is lost.
    raise_with_details();
    EXPECT_EQ(handled, 2);
    EXPECT_EQ(code, SI_QUEUE);
    EXPECT_EQ(value, payload);
  });
}

// A late handler is impossible then, so that it runs at once.
TEST_F(ProgramSignals, AreHandledAtOnceWhereNoneCanBeSent) {
  run_without({SYS_rt_tgsigqueueinfo, SYS_tgkill}, [] {
    const InCall call;
    raise_with_details();
    EXPECT_EQ(handled, 1);
    EXPECT_FALSE(InCall::holds_signals());
    EXPECT_EQ(code, SI_QUEUE);
    EXPECT_EQ(value, payload);
  });
}

}  // namespace
}  // namespace weft::interpose
