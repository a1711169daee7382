// The event loop: stepping, waking, posting, timers, and embedding in another loop.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "message/sides.h"
#include "message/spin_rule.h"
#include "support/error_of.h"

namespace weft::message::testing {
namespace {

TEST(EventLoop, StepWithNothingToDoReturnsAtOnceOrAtTheDeadline) {
  EventLoop loop;
  EXPECT_EQ(loop.step(), 0U);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(loop.step(30ms), 0U);
  EXPECT_GE(std::chrono::steady_clock::now() - before, 30ms);
}

TEST(EventLoop, WakesFromAnotherThread) {
  EventLoop loop;
  std::jthread other([&] { loop.wake(); });
  EXPECT_EQ(loop.step(Deadline::never()), 0U);
  other.join();
  loop.wake();  // also works before the step
  EXPECT_EQ(loop.step(Deadline::never()), 0U);
}

TEST(EventLoop, StopEndsRunAlsoWhereItComesFirst) {
  EventLoop loop;
  loop.stop();
  loop.run();
  std::jthread other([&] { loop.run(); });
  loop.stop();
  other.join();
  std::stop_source source;
  std::jthread third([&] { loop.run(source.get_token()); });
  source.request_stop();
}

TEST(EventLoop, PostsFromManyThreadsKeepTheirOrder) {
  EventLoop loop;
  constexpr int count = 2000;
  std::array<std::vector<int>, 4> seen;
  std::jthread runner([&] { loop.run(); });
  {
    std::vector<std::jthread> posters;
    for (int t = 0; t < 4; ++t) {
      posters.emplace_back([&, t] {
        for (int i = 0; i < count; ++i) loop.post([&seen, t, i] { seen[t].push_back(i); });
      });
    }
  }
  loop.call([] {});
  loop.stop();
  runner.join();
  for (const auto& of_one : seen) {
    ASSERT_EQ(of_one.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(std::ranges::is_sorted(of_one));
  }
}

TEST(EventLoop, CallGivesBackValuesAndExceptions) {
  EventLoop loop;
  EXPECT_EQ(std::this_thread::get_id(), std::this_thread::get_id());
  std::jthread runner([&] { loop.run(); });
  EXPECT_EQ(loop.call([] { return std::this_thread::get_id(); }), runner.get_id());
  EXPECT_EQ(loop.call([&] { return loop.call([] { return 5; }); }), 5);
  EXPECT_THROW(loop.call([] { throw std::runtime_error("no"); }), std::runtime_error);
  loop.stop();
}

TEST(EventLoop, AnotherThreadIsToldToPost) {
  Sides sides;
  std::jthread runner([&] { sides.loop->run(); });
  sides.loop->call([] {});
  EXPECT_THROW(sides.a.send("x"), std::logic_error);
  EXPECT_THROW(sides.loop->step(), std::logic_error);
  EXPECT_THROW((void)sides.loop->connections(), std::logic_error);
  sides.loop->stop();
}

TEST(EventLoop, StepFromACallbackIsALogicError) {
  EventLoop loop;
  loop.post([&] { EXPECT_THROW(loop.step(), std::logic_error); });
  EXPECT_EQ(loop.step(), 1U);
}

// Several threads post sends to a loop in a thread of its own, and read the statuses.
TEST(EventLoop, ManyThreadsSendByPosting) {
  Sides sides;
  std::atomic<int> sent{0};
  std::jthread runner([&] { sides.loop->run(); });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto message = sides.loop->call([&] {
          return sides.a.send(std::string(i % 10 == 0 ? 20'000 : 10, 'x'),
                              {.tag = static_cast<std::uint64_t>(t), .confirm = true});
        });
        if (!message) continue;
        while (message.status() != Status::delivered) std::this_thread::yield();
        ++sent;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(sent, 800);
  sides.loop->stop();
  runner.join();
  EXPECT_EQ(sides.b_log.texts.size(), 800U);
}

TEST(EventLoop, TimersComeInTheirOrderOnce) {
  EventLoop loop;
  std::vector<int> order;
  loop.after(20ms, [&] { order.push_back(3); });
  loop.after(0ms, [&] { order.push_back(1); });
  const auto unwanted = loop.after(5ms, [&] { order.push_back(99); });
  loop.after(10ms, [&] {
    order.push_back(2);
    loop.after(0ms, [&] { order.push_back(4); });
  });
  EXPECT_TRUE(loop.cancel(unwanted));
  EXPECT_FALSE(loop.cancel(unwanted));
  until(loop, [&] { return order.size() == 4; });
  std::ranges::sort(order);
  EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
}

// The loop waits without limit: only the second timer ends that.
TEST(EventLoop, ATimerBehindACanceledOneIsNotForgotten) {
  EventLoop loop;
  bool called = false;
  const auto unwanted = loop.after(1ms, [] { ADD_FAILURE() << "was canceled"; });
  loop.after(20ms, [&] { called = true; });
  EXPECT_TRUE(loop.cancel(unwanted));
  while (!called) loop.step(Deadline::never());
}

TEST(EventLoop, ItsDescriptorWorksInAnotherEpoll) {
  Sides sides;
  while (sides.loop->step() > 0) continue;
  const int outer = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(outer, EPOLL_CTL_ADD, sides.loop->fd(), &event), 0);
  const auto drive = [&](const std::function<bool()>& done) {
    for (int turns = 0; !done(); ++turns) {
      ASSERT_LT(turns, 100'000);
      ASSERT_EQ(epoll_wait(outer, &event, 1, 30'000), 1) << "nobody says that there is work";
      sides.loop->step();
    }
  };
  for (int i = 0; i < 300; ++i) sides.a.send("x", {.confirm = true});
  drive([&] { return sides.a_log.delivered.size() == 300; });
  bool posted = false;
  std::jthread poster([&] { sides.loop->post([&] { posted = true; }); });
  drive([&] { return posted; });
  bool fired = false;
  sides.loop->after(1ms, [&] { fired = true; });
  drive([&] { return fired; });
  sides.a.disconnect();
  drive([&] { return sides.a_log.endings.size() + sides.b_log.endings.size() == 2; });
  close(outer);
}

TEST(EventLoop, WaitingTakesNoProcessorTime) {
  Sides sides;
  while (sides.loop->step() > 0) continue;
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto before = used();
  sides.loop->step(500ms);
  EXPECT_LT(used() - before, 100ms);
}

TEST(EventLoop, LimitsThatCannotBeAreRefused) {
  const auto refused = [](auto change) {
    Limits limits;
    change(limits);
    try {
      const EventLoop loop(limits);
      return false;
    } catch (const Error& error) {
      const std::string& name = error.detail().attribute;
      EXPECT_EQ(error.detail().object, "limits of an event loop");
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
      return error.error_number() == EINVAL && !name.empty();
    }
  };
  EXPECT_TRUE(refused([](Limits& l) { l.credits = 0; }));
  EXPECT_TRUE(refused([](Limits& l) { l.credits = 0x8000; }));
  EXPECT_TRUE(refused([](Limits& l) { l.pool_bytes = l.max_message_bytes - 1; }));
  EXPECT_TRUE(refused([](Limits& l) { l.max_message_bytes = 0; }));
  EXPECT_TRUE(refused([](Limits& l) { l.send_queue_messages = 0; }));
}

TEST(EventLoop, TimesBelowZeroAreRefused) {
  EventLoop loop;
  const auto refused = [&](const Options& options) {
    const auto [text, detail] = test::error_of([&] {
      (void)loop.connect({test::host(), 1}, {}, options);
    });
    EXPECT_NE(text.find(detail.attribute), std::string::npos) << text;
    return detail.attribute;
  };
  EXPECT_EQ(refused({.connect_timeout = -1ms}), "connect_timeout");
  EXPECT_EQ(refused({.keepalive = -1ms}), "keepalive");
}

// No host is this one, also for the error.
TEST(EventLoop, AFailureWithoutAHostNamesThisOne) {
  if (verbs::default_backend() != verbs::Backend::embedded) {
    GTEST_SKIP() << "devices of the kernel need not have the loopback address";
  }
  EventLoop loop;
  std::string text;
  Handlers handlers;
  handlers.error = [&](Connection&, const Error& error) { text = error.what(); };
  const Connection connection = loop.connect({"", 1}, handlers);
  until(loop, [&] { return !text.empty(); });
  EXPECT_EQ(text.rfind("this host port 1 ", 0), 0U) << text;
}

TEST(EventLoop, AUserPointerBelongsToAConnection) {
  Sides sides;
  int mine = 0;
  sides.a.set_user(&mine);
  EXPECT_EQ(sides.a.user(), &mine);
  EXPECT_EQ(sides.b.user(), nullptr);
  EXPECT_EQ(sides.a_log.connection.user(), &mine);
}

// A loop that was polling its connections tells another one of messages from now on.
TEST(EventLoop, IsWatchedAfterItHasPolled) {
  Sides sides;
  sides.a.send("first");
  sides.wait([&] { return sides.b_log.texts.size() == 1; });
  const int fd = sides.loop->fd();
  for (std::size_t count = 2; count < 10; ++count) {
    while (sides.loop->step() > 0) continue;
    sides.a.send("more");
    pollfd watched{fd, POLLIN, 0};
    while (sides.b_log.texts.size() < count) {
      ASSERT_EQ(poll(&watched, 1, 10'000), 1) << "nothing tells of message " << count;
      sides.loop->step();
    }
  }
}

TEST(EventLoop, NeedsNoPolling) {
  Limits limits;
  limits.spin = 0us;
  Sides sides(limits);
  for (std::size_t count = 1; count < 10; ++count) {
    sides.a.send("one");
    sides.wait([&] { return sides.b_log.texts.size() == count; });
  }
}

TEST(EventLoop, RefusesToPollForLessThanNoTime) {
  Limits limits;
  limits.spin = -1us;
  EXPECT_THROW(EventLoop{limits}, Error);
}

// Twice as many sleeps as the last time go without, up to 63; one success, and polling is on again.
TEST(SpinRule, StopsWhereNothingComes) {
  detail::SpinRule rule;
  std::vector<int> left_out;
  for (int i = 0; i < 9; ++i) {
    int count = 0;
    while (!rule.allows()) ++count;
    left_out.push_back(count);
    rule.learn(false);
  }
  EXPECT_EQ(left_out, (std::vector<int>{0, 1, 3, 7, 15, 31, 63, 63, 63}));
  while (!rule.allows()) continue;
  rule.learn(true);
  EXPECT_TRUE(rule.allows());
}

}  // namespace
}  // namespace weft::message::testing
