#include "base/thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace weft {
namespace {

std::size_t stack_of_this_thread() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  void* address = nullptr;
  EXPECT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  pthread_attr_getstack(&attributes, &address, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

std::size_t usual_stack() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  pthread_attr_init(&attributes);
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

// Each thread has one, and a small stack holds it as well as the frames.
constexpr std::size_t large_bytes = std::size_t{1} << 20;
thread_local std::array<std::byte, large_bytes> large;

TEST(Threads, HaveASmallStackThatHoldsTheirFrames) {
  if (usual_stack() < (4U << 20)) GTEST_SKIP() << "all stacks are small here";
  std::size_t found = 0;
  Thread thread([&found] {
    std::array<volatile char, std::size_t{200} * 1024> frame;
    for (std::size_t i = 0; i < frame.size(); i += 1024) frame[i] = 1;
    large[large.size() - 1] = std::byte{1};
    found = stack_of_this_thread();
  });
  thread.join();
  EXPECT_GT(found, 0U);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(found, large_bytes + (1U << 20));
#endif
}

TEST(Threads, HaveTheUsualStackForCodeOfOthers) {
  std::size_t found = 0;
  Thread thread([&found] { found = stack_of_this_thread(); }, Thread::Stack::of_program);
  thread.join();
  EXPECT_GE(found + 65536, usual_stack());
}

TEST(Threads, BlockSignals) {
  int blocked = -1;
  Thread thread([&blocked] {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    blocked = sigismember(&now, SIGUSR1);
  });
  thread.join();
  EXPECT_EQ(blocked, 1);
}

TEST(Threads, MoveAndAreJoinedOnce) {
  std::atomic<bool> ran{false};
  Thread first([&ran] { ran = true; });
  Thread second(std::move(first));
  EXPECT_FALSE(first.joinable());
  first = std::move(second);
  EXPECT_FALSE(second.joinable());
  EXPECT_TRUE(first.joinable());
  first.join();
  EXPECT_FALSE(first.joinable());
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace weft
