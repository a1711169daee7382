// Who looks after what: the progress thread, or the application thread that is at it.
#include "device/engine.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>

namespace weft::device {
namespace {

// A descriptor that is ready until somebody has taken what it holds.
class Bell : public Pollable {
 public:
  Bell() : fd_(sys::event_fd(false)) { sys::set_nonblocking(fd_.get()); }

  void ring() {
    const std::uint64_t one = 1;
    sys::write(fd_.get(), &one, sizeof one);
  }

  void on_ready(std::uint32_t /*events*/) override {
    std::uint64_t count = 0;
    sys::read(fd_.get(), &count, sizeof count);
    answer();
  }

  void on_deadline() override { answer(); }

  void await_answers(int wanted) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_ >= wanted; });
  }

  [[nodiscard]] int answers() {
    const std::lock_guard lock(mutex_);
    return answers_;
  }

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  void answer() {
    const std::lock_guard lock(mutex_);
    ++answers_;
    changed_.notify_all();
  }

  sys::Descriptor fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int answers_ = 0;
};

TEST(Engine, LeavesAloneWhatAnApplicationThreadIsAtHoweverLongItTakes) {
  Engine engine(ProgressMode::automatic);
  const auto long_work = std::make_shared<Bell>();
  const auto clock = std::make_shared<Bell>();
  const auto token = engine.watch(long_work->fd(), EPOLLIN, long_work);
  const auto clock_token = engine.watch(clock->fd(), EPOLLIN, clock);
  std::optional<Pollable::Attention> attention(*long_work);
  long_work->ring();
  // Nobody attends to the clock: each answer to it is a look at everything that is ready.
  for (int look = 1; look <= 20; ++look) {
    clock->ring();
    clock->await_answers(look);
  }
  EXPECT_EQ(long_work->answers(), 0);
  attention.reset();
  long_work->await_answers(1);
  engine.unwatch(token);
  engine.unwatch(clock_token);
}

TEST(Engine, TakesOverWhenNobodyComesAgain) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  { const Pollable::Attention attention(*bell); }
  const auto token = engine.watch(bell->fd(), EPOLLIN, bell);
  bell->ring();
  bell->await_answers(1);
  engine.unwatch(token);
}

// The thread sleeps until an earlier deadline wakes it: who polls meanwhile leaves it its wake-up.
TEST(Engine, AnApplicationThreadThatPollsTakesNoWakeUpOfTheThread) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  constexpr std::uint64_t soon_ns = 100'000;
  constexpr std::uint64_t hopeless_ns = 10'000'000'000;
  for (int round = 1; round <= 1000; ++round) {
    const std::uint64_t start_ns = sys::now_ns();
    engine.call_at(start_ns + soon_ns, bell);
    while (bell->answers() < round) {
      engine.poll();
      ASSERT_LT(sys::now_ns() - start_ns, hopeless_ns) << "in round " << round;
    }
  }
}

}  // namespace
}  // namespace weft::device
