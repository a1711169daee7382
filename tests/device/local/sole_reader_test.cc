#include "device/local/sole_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <thread>

#include "base/event_fd.h"
#include "device/engine.h"

namespace weft::device {
namespace {

// No thread but those of a test.
struct Manual {
  Engine engine{ProgressMode::manual};
  SoleReader reader{engine};
};

TEST(SoleReader, FindsWhatOtherThreadsHaveLeft) {
  Manual manual;
  SoleReader& reader = manual.reader;
  ASSERT_TRUE(reader.begin(EPOLLIN));
  EXPECT_EQ(reader.take_left(), 0U);
  EXPECT_FALSE(reader.begin());
  EXPECT_EQ(reader.take_left(), 0U);
  EXPECT_FALSE(reader.begin(EPOLLIN));
  EXPECT_FALSE(reader.begin_reported(EPOLLOUT));
  EXPECT_EQ(reader.take_left(), std::uint32_t{EPOLLIN | EPOLLOUT});
  EXPECT_FALSE(reader.end());
}

TEST(SoleReader, LearnsAtItsEndWhatCameBehindItsLastLook) {
  Manual manual;
  SoleReader& reader = manual.reader;
  ASSERT_TRUE(reader.begin());
  EXPECT_EQ(reader.take_left(), 0U);
  EXPECT_FALSE(reader.begin(EPOLLIN));
  EXPECT_TRUE(reader.end());
  ASSERT_TRUE(reader.begin());
  EXPECT_EQ(reader.take_left(), std::uint32_t{EPOLLIN});
  EXPECT_FALSE(reader.end());
}

// Two threads write at about the same time, and each reads what was written, unless the other one
// does.
TEST(SoleReader, LosesNothingBetweenThreads) {
  constexpr std::uint64_t rounds = 100'000;
  Manual manual;
  SoleReader& reader = manual.reader;
  std::atomic<std::uint64_t> written = 0;
  std::atomic<std::uint64_t> seen = 0;
  std::uint64_t lost = 0;
  const auto write = [&] {
    written.fetch_add(1);
    if (!reader.begin(EPOLLIN)) return;
    do {
      (void)reader.take_left();
      seen = written.load();
    } while (reader.end() && reader.begin());
  };
  std::barrier round(2, [&]() noexcept { lost += seen == written ? 0 : 1; });
  const auto work = [&] {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      write();
      round.arrive_and_wait();
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(written, 2 * rounds);
  EXPECT_EQ(lost, 0U);
}

// Counts the calls of on_ready(). It never reads, because another thread does.
struct Told final : Pollable {
  explicit Told(Engine& engine) : reader(engine) {}
  void on_ready(std::uint32_t events) override {
    ++times;
    if (reader.begin_reported(events)) ADD_FAILURE() << "nobody reads";
  }
  SoleReader reader;
  int times = 0;
};

TEST(SoleReader, IsNotToldAgainWhileAnotherThreadReads) {
  Engine engine(ProgressMode::manual);
  EventFd event;
  const auto told = std::make_shared<Told>(engine);
  ASSERT_TRUE(told->reader.watch(event.get(), told));
  ASSERT_TRUE(told->reader.begin());
  event.signal();
  for (int i = 0; i < 3; ++i) engine.poll();
  EXPECT_EQ(told->times, 1);
  EXPECT_EQ(told->reader.take_left(), std::uint32_t{EPOLLIN});
  // It has not read all, so that epoll reports the rest.
  told->reader.watch_again();
  engine.poll();
  EXPECT_EQ(told->times, 2);
  told->reader.unwatch();
}

}  // namespace
}  // namespace weft::device
