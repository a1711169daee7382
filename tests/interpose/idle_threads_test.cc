// Work of connections in threads of its own (IdleThreads).
#include "interpose/idle_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/wake_flag.h"

namespace weft::interpose {
namespace {

// The threads use it to their end, so nothing destroys it.
IdleThreads& threads_of_test() {
  static auto* const made = new IdleThreads();
  return *made;
}

// Where threads wait until all of them have come.
class Meeting {
 public:
  explicit Meeting(int expected) : missing_(expected) {}
  void arrive_and_wait() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) all_came_.notify_all();
    all_came_.wait(lock, [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_came_;
  int missing_;
};

TEST(IdleThreads, WorkThatBlocksKeepsNoOtherWorkWaiting) {
  constexpr int works = 40;
  for (int round = 0; round < 3; ++round) {
    // Each work has its share of the meeting, because the last one may leave it after this loop.
    const auto meeting = std::make_shared<Meeting>(works + 1);
    for (int i = 0; i < works; ++i) {
      threads_of_test().start({[](void* argument) {
                                 using Share = std::shared_ptr<Meeting>;
                                 const std::unique_ptr<Share> share(static_cast<Share*>(argument));
                                 (*share)->arrive_and_wait();
                               },
                               new std::shared_ptr<Meeting>(meeting)});
    }
    meeting->arrive_and_wait();
  }
}

TEST(IdleThreads, BeginsAllWorkOfSeveralThreads) {
  constexpr int starters = 4;
  constexpr int rounds = 2000;
  struct Counted {
    std::atomic<int> begun{0};
    WakeFlag done;
  };
  std::vector<std::thread> threads;
  std::vector<Counted> counts(starters);
  for (Counted& mine : counts) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < rounds; ++i) {
        threads_of_test().start({[](void* argument) {
                                   auto* const counted = static_cast<Counted*>(argument);
                                   ++counted->begun;
                                   counted->done.set();
                                 },
                                 &mine});
        while (!mine.done.sleep(std::chrono::hours(1))) {
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  for (const Counted& each : counts) EXPECT_EQ(each.begun, rounds);
}

}  // namespace
}  // namespace weft::interpose
