// Statistics are written at exit, when a thread may be stopped for good while it holds the lock of
// a queue: they leave that queue out instead of waiting for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "device/bounded_lock.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

// A thread that holds a lock until this object is destroyed.
class Holder {
 public:
  template <typename Mutex>
  explicit Holder(Mutex& held) : thread_([this, &held] { hold(held); }) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return holds_; });
  }
  ~Holder() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  template <typename Mutex>
  void hold(Mutex& held) {
    const std::lock_guard own(held);
    std::unique_lock lock(mutex_);
    holds_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return over_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
  bool over_ = false;
  std::thread thread_;  // the last member: it uses the others
};

TEST(BoundedLock, IsTakenOnlyIfItIsFree) {
  std::mutex mutex;
  std::unique_lock lock(mutex, std::defer_lock);
  {
    const Holder holder(mutex);
    EXPECT_FALSE(lock_for_a_while(lock));
    EXPECT_FALSE(lock.owns_lock());
  }
  EXPECT_TRUE(lock_for_a_while(lock));
  EXPECT_TRUE(lock.owns_lock());
}

class StatisticsLocks : public testing::Test {
 protected:
  [[nodiscard]] StatisticsRegistry::Snapshot snapshot() {
    return device_->statistics_registry().snapshot();
  }
  [[nodiscard]] bool lists_queue_pair() {
    const auto all = snapshot();
    return std::ranges::count(all.queue_pairs, end_.number(),
                              &StatisticsRegistry::QueuePairEntry::number) == 1;
  }

  static std::unique_ptr<Device> make_device() {
    Settings settings;
    settings.personality = Personality::roce;
    settings.address = "127.0.0.1";
    settings.stats_path = "counters";
    auto made = Device::create(settings);
    if (!made) throw std::runtime_error(made.error());
    return std::move(*made);
  }

  std::unique_ptr<Device> device_ = make_device();
  RawEnd end_{*device_};
};

TEST_F(StatisticsLocks, AQueueWhoseLockIsHeldIsLeftOut) {
  const std::size_t all = snapshot().completion_queues.size();
  ASSERT_GT(all, 0U);
  {
    const Holder holder(end_.queue.mutex());
    EXPECT_EQ(snapshot().completion_queues.size(), all - 1);
    EXPECT_TRUE(lists_queue_pair()) << "its own lock is free";
  }
  EXPECT_EQ(snapshot().completion_queues.size(), all);
}

TEST_F(StatisticsLocks, AQueuePairWhoseLockIsHeldIsLeftOut) {
  {
    const Holder holder(end_.queue_pair->mutex());
    EXPECT_FALSE(lists_queue_pair());
  }
  EXPECT_TRUE(lists_queue_pair());
}

}  // namespace
}  // namespace weft::device
