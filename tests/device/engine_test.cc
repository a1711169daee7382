// Which thread makes progress: the progress thread, or an application thread that waits or polls.
#include "device/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

namespace weft::device {
namespace {

// A descriptor that is readable until its event is consumed.
class Bell : public Pollable {
 public:
  Bell() : fd_(sys::event_fd(false)) { sys::set_nonblocking(fd_.get()); }

  void ring() {
    const std::uint64_t one = 1;
    sys::write(fd_.get(), &one, sizeof one);
  }

  void on_ready(std::uint32_t /*events*/) override {
    std::uint64_t count = 0;
    if (sys::read(fd_.get(), &count, sizeof count) == sizeof count) answer();
  }

  void on_deferred() override { answer(); }

  void on_deadline() override { answer(); }

  void await_answers(int wanted) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_ >= wanted; });
  }

  [[nodiscard]] std::thread::id answered_by() {
    const std::lock_guard lock(mutex_);
    return answered_by_;
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
    answered_by_ = std::this_thread::get_id();
    changed_.notify_all();
  }

  sys::Descriptor fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int answers_ = 0;
  std::thread::id answered_by_;
};

// A thread in Engine::wait(), for an event that only the test triggers.
class Sleeper {
 public:
  explicit Sleeper(Engine& engine) : fd_(sys::event_fd(false)) {
    thread_ = std::thread([this, &engine] {
      pollfd entry{fd_.get(), POLLIN, 0};
      result_ = engine.wait({&entry, 1}, std::nullopt, nullptr);
      events_ = entry.revents;
    });
  }
  ~Sleeper() {
    wake();
    thread_.join();
    EXPECT_EQ(result_, 1);
    EXPECT_EQ(events_, POLLIN);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void wake() {
    const std::uint64_t one = 1;
    sys::write(fd_.get(), &one, sizeof one);
  }
  [[nodiscard]] std::thread::id id() const { return thread_.get_id(); }

 private:
  sys::Descriptor fd_;
  std::thread thread_;
  int result_ = 0;
  short events_ = 0;
};

class Watched {
 public:
  Watched(Engine& engine, std::shared_ptr<Bell> bell)
      : engine_(engine), token_(engine.watch(bell->fd(), EPOLLIN, bell)) {}
  ~Watched() { engine_.unwatch(token_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  [[nodiscard]] std::uint64_t token() const { return token_; }

 private:
  Engine& engine_;
  std::uint64_t token_;
};

// Rings until that thread handles the event: the progress thread may handle the first ones.
void await_answer_of(std::thread::id thread, Bell& bell) {
  do {
    const int before = bell.answers();
    bell.ring();
    bell.await_answers(before + 1);
  } while (bell.answered_by() != thread);
}

TEST(Engine, LeavesAloneWhatAnApplicationThreadIsAtHoweverLongItTakes) {
  Engine engine(ProgressMode::automatic);
  const auto long_work = std::make_shared<Bell>();
  const auto clock = std::make_shared<Bell>();
  const auto token = engine.watch(long_work->fd(), EPOLLIN, long_work);
  const auto clock_token = engine.watch(clock->fd(), EPOLLIN, clock);
  std::optional<Pollable::Attention> attention(*long_work);
  long_work->ring();
  // No thread attends to the clock, so each of its answers proves that the engine has looked at all
  // ready descriptors.
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

// The descriptor is never ready when the progress thread looks, as with a program that takes each
// message before the thread has woken up.
TEST(Engine, StandsByForAProgramThatLeavesItNothing) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  constexpr std::uint64_t hopeless_ns = 20'000'000'000;
  const std::uint64_t start_ns = sys::now_ns();
  while (!engine.defer(bell, false)) {
    engine.poll();
    ASSERT_LT(sys::now_ns() - start_ns, hopeless_ns);
  }
  bell->await_answers(1);  // what was deferred is done within a tick
  engine.deferral_done();
}

// The program does not come back, so the thread must do it in the end.
TEST(Engine, WhatMayWaitForATickIsDoneAsWell) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  while (!engine.defer(bell, false, 2)) engine.poll();
  bell->await_answers(1);
  engine.deferral_done();
}

TEST(Engine, AThreadThatExpectsMoreTakesWhatComesAndSleepsInTheEnd) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  for (int i = 1; i <= 100; ++i) {
    engine.expect_more();
    bell->ring();
    bell->await_answers(i);
  }
}

// Counts how often it was ready between two polls of the program.
class Polled final : public Bell {
 public:
  void on_ready_between_polls(std::uint32_t /*events*/) override { ++between_polls; }

  int between_polls = 0;
};

// Polls as a program does until the engine knows that it polls steadily.
void poll_until_steady(Engine& engine, const std::shared_ptr<Bell>& bell) {
  const auto asks = std::make_shared<Bell>();  // the thread to stand by
  while (engine.steady_polling() == 0) {
    { const Pollable::Attention attention(*bell); }
    engine.poll();
    if (engine.defer(asks, false)) engine.deferral_done();
  }
}

TEST(Engine, WhatIsPolledSteadilyIsWatchedAgainWhenThePollingEnds) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  poll_until_steady(engine, bell);
  engine.leave(watched.token());
  bell->ring();
  bell->await_answers(1);
  EXPECT_NE(bell->answered_by(), std::this_thread::get_id());
}

TEST(Engine, WhatIsLeftIsWatchedAgainOnceItsTargetIsNotPolled) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const auto other = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  const Watched watched_too(engine, other);
  poll_until_steady(engine, bell);
  engine.leave(watched_too.token());
  other->ring();
  // The program goes on with the first one only. Its polls serve what is in the epoll set.
  while (other->answers() == 0) {
    { const Pollable::Attention attention(*bell); }
    engine.poll();
  }
}

// The progress thread is not woken for it while the program polls.
TEST(Engine, AProgramThatPollsSteadilyDoesTheWorkOfATick) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const auto other = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  const Watched watched_too(engine, other);
  // Again and again, since this thread may lose its processor for longer than a tick.
  do {
    poll_until_steady(engine, bell);
    const int before = other->answers();
    if (!engine.defer(other, false, 2)) continue;
    while (other->answers() == before) engine.poll();
    engine.deferral_done();
  } while (other->answered_by() != std::this_thread::get_id());
}

TEST(Engine, AChangedRegistrationIsWatchedAgain) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  poll_until_steady(engine, bell);
  const std::uint32_t before = engine.steady_polling();
  engine.leave(watched.token());
  engine.change(watched.token(), EPOLLIN);
  EXPECT_TRUE(engine.steady_polling() == 0 || engine.steady_polling() != before);
  bell->ring();
  bell->await_answers(1);
}

TEST(Engine, AThreadThatWaitsServesWhatWasLeft) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  poll_until_steady(engine, bell);
  engine.leave(watched.token());
  const Sleeper sleeper(engine);
  bell->ring();
  bell->await_answers(1);
}

TEST(Engine, ATargetThatEndsWhileItIsLeftIsForgotten) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const auto next = std::make_shared<Bell>();
  {
    const Watched watched(engine, bell);
    poll_until_steady(engine, bell);
    engine.leave(watched.token());
  }
  const Watched watched(engine, next);  // in the same place
  next->ring();
  next->await_answers(1);
  EXPECT_EQ(bell->answers(), 0);
}

TEST(Engine, APollLeavesWhatItsCallerDrivesToTheNextPoll) {
  Engine engine(ProgressMode::manual);
  const auto bell = std::make_shared<Polled>();
  const Watched watched(engine, bell);
  Pollable* const driven = bell.get();
  bell->ring();
  EXPECT_FALSE(engine.poll({&driven, 1}));
  EXPECT_EQ(bell->between_polls, 1);
  EXPECT_EQ(bell->answers(), 0);
  EXPECT_TRUE(engine.poll());
  EXPECT_EQ(bell->answers(), 1);
}

TEST(Engine, APollLeavesDeferredWorkOfWhatItsCallerDrives) {
  Engine engine(ProgressMode::manual);
  const auto bell = std::make_shared<Bell>();
  const auto other = std::make_shared<Bell>();
  ASSERT_TRUE(engine.defer(bell, false));
  ASSERT_TRUE(engine.defer(other, false));
  Pollable* const driven = bell.get();
  engine.poll({&driven, 1});
  EXPECT_EQ(bell->answers(), 0);
  EXPECT_EQ(other->answers(), 1);
  engine.deferral_done();
  engine.poll();
  EXPECT_EQ(bell->answers(), 1);
  engine.deferral_done();
}

TEST(StandByRequest, IsMadeOnceUntilItIsTaken) {
  StandByRequest request;
  EXPECT_FALSE(request.take());
  EXPECT_TRUE(request.ask(1));
  EXPECT_FALSE(request.ask(2));
  EXPECT_TRUE(request.take());
  EXPECT_FALSE(request.take());
  EXPECT_TRUE(request.ask(3));
}

TEST(StandByRequest, ComesLessOftenWhereItBringsNothing) {
  constexpr std::uint64_t ms = 1'000'000;
  StandByRequest request;
  std::uint64_t now_ns = ms;
  std::uint64_t last_pause_ns = 0;
  for (int i = 0; i < 3; ++i) {
    request.stood_by(now_ns - ms / 10, now_ns);
    const std::uint64_t ended_ns = now_ns;
    while (!request.ask(now_ns)) now_ns += ms / 100;
    EXPECT_GT(now_ns - ended_ns, last_pause_ns);
    last_pause_ns = now_ns - ended_ns;
    EXPECT_TRUE(request.take());
  }
  request.stood_by(now_ns, now_ns + 2 * ms);
  EXPECT_TRUE(request.ask(now_ns + 2 * ms));
}

// The progress thread sleeps until a deadline; a thread that polls must not consume that wake-up.
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

TEST(Engine, WhoWaitsAnswersItself) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  const Sleeper sleeper(engine);
  await_answer_of(sleeper.id(), *bell);
  for (int i = 0; i < 100; ++i) {
    const int before = bell->answers();
    bell->ring();
    bell->await_answers(before + 1);
    EXPECT_EQ(bell->answered_by(), sleeper.id());
  }
}

TEST(Engine, TheThreadAnswersWhenTheWaiterHasGone) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  std::thread::id sleeper_id;
  {
    const Sleeper sleeper(engine);
    sleeper_id = sleeper.id();
    await_answer_of(sleeper_id, *bell);
  }
  const int before = bell->answers();
  bell->ring();
  bell->await_answers(before + 1);
  EXPECT_NE(bell->answered_by(), sleeper_id);
}

TEST(Engine, WhereTwoWaitOneGoesAndNothingIsMissed) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const Watched watched(engine, bell);
  auto first = std::make_unique<Sleeper>(engine);
  await_answer_of(first->id(), *bell);
  const Sleeper second(engine);
  first.reset();
  for (int i = 0; i < 100; ++i) {
    const int before = bell->answers();
    bell->ring();
    bell->await_answers(before + 1);
  }
}

TEST(Engine, AWaitEndsInTime) {
  Engine engine(ProgressMode::automatic);
  const std::uint64_t until_ns = sys::now_ns() + 2'000'000;
  EXPECT_EQ(engine.wait({}, until_ns, nullptr), 0);
  EXPECT_GE(sys::now_ns(), until_ns);
  EXPECT_EQ(engine.wait({}, 0, nullptr), 0);
}

// Deadlines are set before and during a wait, with a progress thread that sleeps for an hour.
TEST(Engine, DeadlinesComeWhileSomebodyWaits) {
  Engine engine(ProgressMode::automatic);
  const auto bell = std::make_shared<Bell>();
  const auto late = std::make_shared<Bell>();
  constexpr std::uint64_t ms = 1'000'000;
  engine.call_at(sys::now_ns() + 3'600'000 * ms, late);
  const Watched watched(engine, bell);
  for (int round = 1; round <= 200; ++round) {
    const int before = bell->answers();
    const Sleeper sleeper(engine);
    engine.call_at(sys::now_ns() + ms / 10, bell);
    bell->await_answers(before + 1);
  }
  EXPECT_EQ(late->answers(), 0);
}

// Stays in its deadline until the test ends it.
class Gate final : public Pollable {
 public:
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override {
    entered = true;
    entered.notify_one();
    open.wait(false);
  }

  std::atomic<bool> entered = false;
  std::atomic<bool> open = false;
};

// The progress thread is elsewhere, as it is for a tick while a program polls.
TEST(Engine, APollRunsTheDeadlinesThatAreDue) {
  Engine engine(ProgressMode::automatic);
  const auto gate = std::make_shared<Gate>();
  const auto bell = std::make_shared<Bell>();
  engine.call_at(0, gate);
  gate->entered.wait(false);
  engine.call_at(sys::now_ns(), bell);
  for (int i = 0; i < 1000 && bell->answers() == 0; ++i) engine.poll();
  EXPECT_EQ(bell->answered_by(), std::this_thread::get_id());
  gate->open = true;
  gate->open.notify_one();
}

// Defers its work to the next call and makes none, so that the engine must call on_deferred().
class Lazy final : public Bell {
 public:
  explicit Lazy(Engine& engine) : engine_(engine) {}
  void on_ready_in_wait(std::uint32_t events) override {
    std::uint64_t count = 0;
    if (engine_.defer(self, true)) {
      sys::read(fd(), &count, sizeof count);
      deferred = true;
    } else {
      on_ready(events);
    }
  }
  void on_deferred() override {
    engine_.deferral_done();
    Bell::on_deferred();
  }

  std::weak_ptr<Lazy> self;
  std::atomic<bool> deferred = false;

 private:
  Engine& engine_;
};

TEST(Engine, WhatAWaiterPutsOffIsDoneBeforeItSleepsAgain) {
  Engine engine(ProgressMode::automatic);
  const auto lazy = std::make_shared<Lazy>(engine);
  lazy->self = lazy;
  const Watched watched(engine, lazy);
  const Sleeper sleeper(engine);
  while (!lazy->deferred) {
    const int before = lazy->answers();
    lazy->ring();
    lazy->await_answers(before + 1);
  }
  EXPECT_EQ(lazy->answered_by(), sleeper.id());
}

// Memory may run out in the progress thread. What it was doing is in an unknown state then.
TEST(EngineDeathTest, SaysWhyTheProgressThreadEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  class Broken : public Pollable {
    void on_ready(std::uint32_t /*events*/) override {}
    void on_deadline() override { throw std::bad_alloc(); }
  };
  EXPECT_EXIT(
      {
        Engine engine(ProgressMode::automatic);
        const auto broken = std::make_shared<Broken>();
        engine.call_at(0, broken);
        while (true) std::this_thread::yield();
      },
      testing::KilledBySignal(SIGABRT), "weft: the progress thread cannot continue");
}

}  // namespace
}  // namespace weft::device
