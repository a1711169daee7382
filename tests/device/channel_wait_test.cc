// A thread that waits for an event of a completion channel moves the data itself: it looks for a
// moment, and then sleeps in place of the progress thread (completion/channel_wait.h).
#include "device/completion/channel_wait.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/limits.h"
#include "device/pair_fixture.h"
#include "support/counting_handler.h"
#include "support/refuse.h"

namespace weft::device {
namespace {

using test::CountingHandler;

PairOptions with_channels() {
  PairOptions options;
  options.ends.channel = true;
  return options;
}

// As ibv_get_cq_event(3): 0 or an errno.
int wait_for_event(End& end) {
  const int failed = ChannelWait::begin(*end.channel, end.context.engine())
                         ? ChannelWait::await()
                         : sys::await_token(end.channel->verbs()->fd);
  CompletionQueue* queue = nullptr;
  if (failed == 0) {
    EXPECT_TRUE(end.channel->take(queue));
    EXPECT_EQ(queue, &end.queue);
  }
  return failed;
}

void acknowledge(End& end, unsigned count) {
  end.queue.verbs()->comp_events_completed += count;
}

void await(const std::function<bool()>& condition) {
  const std::uint64_t end_ns = sys::now_ns() + 10'000'000'000;
  while (!condition()) {
    ASSERT_LT(sys::now_ns(), end_ns);
    std::this_thread::yield();
  }
}

bool is_led(End& end) {
  return end.context.engine().wait_leader().has_leader();
}

// Beside the queue pair of an end, so that a test sees, and joins in, what a wait does.
class Watched final : public Driven {
 public:
  explicit Watched(std::function<void(int drives)> on_drive = [](int) {})
      : on_drive_(std::move(on_drive)) {}
  void drive_inline() override { on_drive_(++drives_); }
  void begin_look() override { ++begun_; }
  void end_look() override { ++ended_; }

  [[nodiscard]] int drives() const { return drives_; }
  [[nodiscard]] int begun() const { return begun_; }
  [[nodiscard]] int ended() const { return ended_; }

 private:
  std::function<void(int)> on_drive_;
  std::atomic<int> drives_{0};
  std::atomic<int> begun_{0};
  std::atomic<int> ended_{0};
};

// One message of 8 bytes for the passive end of a pair, which has armed its queue for it.
class ChannelWaitTest : public testing::Test {
 protected:
  void expect_message() {
    ASSERT_EQ(pair_.b.post_receive(1, {to_->sge(0, 8)}), 0);
    arm();
  }
  void arm() { ASSERT_EQ(ibv_req_notify_cq(pair_.b.queue.verbs(), 0), 0); }
  void send() { EXPECT_EQ(pair_.a.send(2, {from_->sge(0, 8)}), 0); }
  void take_completions() {
    EXPECT_EQ(pair_.b.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair_.a.await().status, IBV_WC_SUCCESS);
  }
  // Each thread has a SpinRule of its own, so the first wait of a new one looks.
  std::thread wait_in_thread() {
    result_ = -1;
    return std::thread([this] {
      thread_ = gettid();
      result_ = wait_for_event(pair_.b);
    });
  }
  // The thread has looked, and sleeps. Where it should sleep for a lock instead, signals are
  // blocked.
  void await_sleep() {
    await([&] {
      if (watched_->ended() == 0) return false;
      std::ifstream file("/proc/self/task/" + std::to_string(thread_) + "/stat");
      std::string state;
      for (std::string word; state.empty() && file >> word;) {
        if (word.back() == ')') file >> state;
      }
      return state == "S";
    });
  }
  void watch(const std::shared_ptr<Watched>& watched) {
    watched_ = watched;
    pair_.b.queue.attach(watched);
  }
  void TearDown() override {
    if (watched_) pair_.b.queue.detach(watched_.get());
  }

  Pair pair_{with_channels()};
  std::unique_ptr<Buffer> from_ = pair_.a.buffer(8);
  std::unique_ptr<Buffer> to_ = pair_.b.buffer(8);
  std::shared_ptr<Watched> watched_;
  std::atomic<int> result_{-1};
  std::atomic<pid_t> thread_{0};
};

TEST_F(ChannelWaitTest, LooksBeforeItSleeps) {
  watch(std::make_shared<Watched>([this](int drives) {
    if (drives == 3) send();
  }));
  expect_message();
  wait_in_thread().join();
  EXPECT_EQ(result_, 0);
  EXPECT_GE(watched_->drives(), 3);
  EXPECT_EQ(watched_->begun(), 1);
  EXPECT_EQ(watched_->ended(), 1);
  take_completions();
  acknowledge(pair_.b, 1);
}

TEST_F(ChannelWaitTest, SleepsWhereNothingComesAtOnce) {
  watch(std::make_shared<Watched>());
  expect_message();
  std::thread thread = wait_in_thread();
  await_sleep();
  EXPECT_TRUE(is_led(pair_.b));
  send();
  thread.join();
  EXPECT_EQ(result_, 0);
  EXPECT_FALSE(is_led(pair_.b));
  take_completions();
  acknowledge(pair_.b, 1);
}

// It raises no event, so its queue pairs need not be asked, and their peers may wake this process.
TEST_F(ChannelWaitTest, LeavesAQueueThatIsNotArmed) {
  watch(std::make_shared<Watched>());
  EXPECT_FALSE(pair_.b.channel->begin_look());
  EXPECT_EQ(watched_->begun(), 0);
  arm();
  ASSERT_TRUE(pair_.b.channel->begin_look());
  EXPECT_EQ(watched_->begun(), 1);
  // Only one thread looks.
  std::thread([&] { EXPECT_FALSE(pair_.b.channel->begin_look()); }).join();
  pair_.b.channel->look();
  EXPECT_EQ(watched_->drives(), 1);
  pair_.b.channel->end_look();
  EXPECT_EQ(watched_->ended(), 1);
}

TEST_F(ChannelWaitTest, TakesAnEventThatIsThere) {
  watch(std::make_shared<Watched>());
  expect_message();
  send();
  await([&] { return pair_.b.channel->has_event(); });
  EXPECT_EQ(wait_for_event(pair_.b), 0);
  EXPECT_EQ(watched_->begun(), 0);
  take_completions();
  acknowledge(pair_.b, 1);
}

// Then one thread receives while another one handles what it has received. That is so for a moment
// only, which a busy machine may miss.
TEST_F(ChannelWaitTest, LeavesBulkToTheProgressThread) {
  watch(std::make_shared<Watched>());
  bool left = false;
  for (int i = 0; i < 100 && !left; ++i) {
    expect_message();
    const int begun = watched_->begun();
    std::thread thread([&] {
      pair_.b.context.engine().note_bulk();
      result_ = wait_for_event(pair_.b);
    });
    send();
    thread.join();
    left = watched_->begun() == begun;
    EXPECT_EQ(result_, 0);
    take_completions();
    acknowledge(pair_.b, 1);
  }
  EXPECT_TRUE(left);
}

// SIGUSR1 has a handler with these flags, and SIGUSR2 another one, unless that is -1.
struct Flags {
  const char* name;
  int first;
  int other = -1;
  [[nodiscard]] bool restarts() const { return (first & SA_RESTART) != 0; }
};

// As read(2) ends, or goes on: signal(7).
class Signals : public ChannelWaitTest, public testing::WithParamInterface<Flags> {
 protected:
  // The thread has got the signal.
  void expect_as_of_read(std::thread& thread) {
    if (GetParam().restarts()) {
      await([&] { return CountingHandler::handled() > 0; });
      EXPECT_EQ(result_, -1);
    } else {
      await([&] { return result_ != -1; });
      EXPECT_EQ(result_, EINTR);
    }
    const bool went_on = result_ == -1;
    if (went_on) send();
    thread.join();
    EXPECT_FALSE(is_led(pair_.b));
    if (!went_on) return;
    EXPECT_EQ(result_, 0);
    take_completions();
    acknowledge(pair_.b, 1);
  }

  CountingHandler handler_{SIGUSR1, GetParam().first};
  std::optional<CountingHandler> other_;
  void SetUp() override {
    if (GetParam().other >= 0) other_.emplace(SIGUSR2, GetParam().other);
  }
};
INSTANTIATE_TEST_SUITE_P(Handlers, Signals,
                         testing::Values(Flags{"Restart", SA_RESTART}, Flags{"Interrupt", 0},
                                         Flags{"InterruptOnce", static_cast<int>(SA_RESETHAND)},
                                         Flags{"RestartBesideOther", SA_RESTART, 0},
                                         Flags{"InterruptBesideOther", 0, SA_RESTART}),
                         [](const auto& test) { return test.param.name; });

// No handler runs while the thread looks.
TEST_P(Signals, DuringTheLookCountAsLaterOnes) {
  watch(std::make_shared<Watched>([](int drives) {
    if (drives != 1) return;
    pthread_kill(pthread_self(), SIGUSR1);
    EXPECT_EQ(CountingHandler::handled(), 0);
  }));
  expect_message();
  std::thread thread = wait_in_thread();
  expect_as_of_read(thread);
}

TEST_P(Signals, DuringTheSleepCountAsThoseOfRead) {
#ifdef __SANITIZE_THREAD__
  // It runs handlers behind calls that it knows, and this thread makes none before the message.
  if (GetParam().other >= 0 && GetParam().restarts()) {
    GTEST_SKIP() << "ThreadSanitizer keeps the signal back";
  }
#endif
  watch(std::make_shared<Watched>());
  expect_message();
  std::thread thread = wait_in_thread();
  await_sleep();
  // Only read(2) itself knows where there are handlers of both kinds.
  EXPECT_EQ(is_led(pair_.b), GetParam().other < 0);
  pthread_kill(thread.native_handle(), SIGUSR1);
  expect_as_of_read(thread);
}

// A sandbox refuses to say which signals have come during the look. Their handlers run behind it,
// and the wait ends with what it waits for.
TEST_F(ChannelWaitTest, WithoutRtSigpendingASignalOfTheLookEndsNothing) {
  const CountingHandler handler(SIGUSR1, 0);
  watch(std::make_shared<Watched>([](int drives) {
    if (drives == 1) pthread_kill(pthread_self(), SIGUSR1);
  }));
  expect_message();
  std::atomic<int> possible{-1};
  result_ = -1;
  std::thread thread([&] {
    possible = test::refuse({SYS_rt_sigpending}, EPERM) ? 1 : 0;
    if (possible == 1) result_ = wait_for_event(pair_.b);
  });
  await([&] { return possible != -1; });
  if (possible == 0) {
    thread.join();
    GTEST_SKIP() << "no seccomp filters here";
  }
  await([] { return CountingHandler::handled() == 1; });
  EXPECT_EQ(result_, -1);
  send();
  thread.join();
  EXPECT_EQ(result_, 0);
  take_completions();
  acknowledge(pair_.b, 1);
}

// The thread is gone, and what comes finds the progress thread.
TEST_F(ChannelWaitTest, ACancelledThreadIsNotWaitedFor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow the stack of a cancelled thread";
#endif
  watch(std::make_shared<Watched>());
  expect_message();
  std::thread thread = wait_in_thread();
  await_sleep();
  pthread_cancel(thread.native_handle());
  thread.join();
  EXPECT_EQ(result_, -1);
  EXPECT_FALSE(is_led(pair_.b));
  send();
  pollfd entry{pair_.b.channel->verbs()->fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_EQ(wait_for_event(pair_.b), 0);
  take_completions();
  acknowledge(pair_.b, 1);
}

// It sleeps on, as in read(2). Its descriptor stays open, so that a new channel cannot have the
// same number, and it serves the device as before.
TEST_F(ChannelWaitTest, AThreadOutlivesTheChannelThatItWaitsFor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not follow the stack of a cancelled thread";
#endif
  auto channel = CompletionChannel::make(pair_.b.context.verbs());
  const int fd = channel->verbs()->fd;
  std::thread thread([&] {
    if (ChannelWait::begin(*channel, pair_.b.context.engine())) result_ = ChannelWait::await();
  });
  await([&] { return is_led(pair_.b); });
  channel.reset();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pair_.b.post_receive(1, {to_->sge(0, 8)}), 0);
    send();
    take_completions();
  }
  EXPECT_NE(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(result_, -1);
  pthread_cancel(thread.native_handle());
  thread.join();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

// The thread that waits here serves the device, also for one that polls another descriptor.
TEST_F(ChannelWaitTest, ALeaderServesOthers) {
  watch(std::make_shared<Watched>());
  expect_message();
  std::thread thread = wait_in_thread();
  await_sleep();
  ASSERT_TRUE(is_led(pair_.b));
  EndOptions options;
  options.channel = true;
  End sender(*pair_.device, options);
  End receiver(*pair_.device, options);
  Pair::connect(*sender.queue_pair, *receiver.queue_pair, with_channels());
  const auto from = sender.buffer(8);
  const auto to = receiver.buffer(8);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(receiver.post_receive(1, {to->sge(0, 8)}), 0);
    ASSERT_EQ(ibv_req_notify_cq(receiver.queue.verbs(), 0), 0);
    ASSERT_EQ(sender.send(1, {from->sge(0, 8)}), 0);
    pollfd entry{receiver.channel->verbs()->fd, POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 10'000), 1) << i;
    EXPECT_EQ(wait_for_event(receiver), 0);
    acknowledge(receiver, 1);
    EXPECT_EQ(receiver.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  }
  send();
  thread.join();
  EXPECT_EQ(result_, 0);
  take_completions();
  acknowledge(pair_.b, 1);
}

class Deadline final : public Pollable {
 public:
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override { passed = true; }
  std::atomic<bool> passed{false};
};

// The progress thread leaves the data to a thread that polls, and a leader would take them away.
TEST_F(ChannelWaitTest, GivesUpToLeadWhereAnotherThreadPolls) {
  watch(std::make_shared<Watched>());
  expect_message();
  std::thread thread = wait_in_thread();
  await_sleep();
  Engine& engine = pair_.b.context.engine();
  ASSERT_TRUE(is_led(pair_.b));
  // One that only wakes up goes on.
  const auto deadline = std::make_shared<Deadline>();
  engine.call_at(sys::now_ns(), deadline);
  await([&] { return deadline->passed.load(); });
  await_sleep();
  EXPECT_TRUE(is_led(pair_.b));
  const auto next = std::make_shared<Deadline>();
  await([&] {
    engine.poll();
    engine.call_at(sys::now_ns(), next);
    return !is_led(pair_.b);
  });
  send();
  thread.join();
  EXPECT_EQ(result_, 0);
  take_completions();
  acknowledge(pair_.b, 1);
}

// To look takes the lock of each queue pair.
TEST_F(ChannelWaitTest, LooksAtFewQueuePairsOnly) {
  watch(std::make_shared<Watched>());
  std::vector<std::shared_ptr<Watched>> more;
  for (std::size_t i = 0; i < limits::looks_of_a_poll; ++i) {
    pair_.b.queue.attach(more.emplace_back(std::make_shared<Watched>()));
  }
  arm();
  EXPECT_FALSE(pair_.b.channel->begin_look());
  EXPECT_EQ(watched_->begun(), 0);
  for (const auto& one : more) pair_.b.queue.detach(one.get());
  ASSERT_TRUE(pair_.b.channel->begin_look());
  pair_.b.channel->end_look();
  EXPECT_EQ(watched_->ended(), 1);
}

// Waits for an event, unless there is something, until a message has come.
void await_message(End& end) {
  for (int received = 0; received == 0;) {
    ASSERT_EQ(ibv_req_notify_cq(end.queue.verbs(), 0), 0);
    const auto take = [&] {
      while (const auto completion = end.look()) {
        ASSERT_EQ(completion->status, IBV_WC_SUCCESS);
        received += completion->wr_id == 1;
      }
    };
    take();
    if (received != 0) return;
    ASSERT_EQ(wait_for_event(end), 0);
    acknowledge(end, 1);
    take();
  }
}

// Both ends of each connection wait for events, and answer each other.
TEST(ChannelWait, SeveralThreadsThatWaitAllGoOn) {
  constexpr int connections = 3;
  constexpr int rounds = 500;
  Pair pair(with_channels());
  EndOptions options;
  options.channel = true;
  std::atomic<int> done{0};
  const auto run = [&] {
    End first(*pair.device, options);
    End second(*pair.device, options);
    Pair::connect(*first.queue_pair, *second.queue_pair, with_channels());
    const auto of_first = first.buffer(8);
    const auto of_second = second.buffer(8);
    ASSERT_EQ(first.post_receive(1, {of_first->sge(0, 8)}), 0);
    ASSERT_EQ(second.post_receive(1, {of_second->sge(0, 8)}), 0);
    // Each posts its next receive before it sends, so no message comes too early.
    std::thread answers([&] {
      for (int i = 0; i < rounds; ++i) {
        await_message(second);
        ASSERT_EQ(second.post_receive(1, {of_second->sge(0, 8)}), 0);
        ASSERT_EQ(second.send(2, {of_second->sge(0, 8)}), 0);
      }
      ++done;
    });
    for (int i = 0; i < rounds; ++i) {
      ASSERT_EQ(first.send(2, {of_first->sge(0, 8)}), 0);
      await_message(first);
      ASSERT_EQ(first.post_receive(1, {of_first->sge(0, 8)}), 0);
    }
    ++done;
    answers.join();
  };
  std::vector<std::thread> running;
  for (int i = 0; i < connections; ++i) running.emplace_back(run);
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(done, 2 * connections);
}

}  // namespace
}  // namespace weft::device
