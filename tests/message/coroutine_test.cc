// Coroutines: waits, deadlines, cancellation, and loops that end while coroutines wait.
#include <malloc.h>

#include <set>
#include <thread>

#include "message/sides.h"
#include "support/host.h"

namespace weft::message::testing {
namespace {

Task<> serve_one(EventLoop& loop, Acceptor& acceptor) {
  auto request = co_await acceptor.next();
  Connection peer = request->accept({});
  co_await peer.established();
  while (auto message = co_await peer.receive()) {
    EXPECT_EQ(co_await peer.send(message->bytes(), {.tag = message->tag(), .confirm = true}),
              Status::delivered);
  }
  EXPECT_EQ(peer.state(), State::ended);
  (void)loop;
}

Task<int> ask(Connection server, int number) {
  EXPECT_EQ(co_await server.send(std::to_string(number)), Status::sent);
  const auto answer = co_await server.receive();
  co_return answer ? std::stoi(text_of(answer->bytes())) : -1;
}

Task<> talk(EventLoop& loop, std::uint16_t port, int& right) {
  Connection server = loop.connect({test::host(), port}, {});
  co_await server.established(30s);
  for (int i = 0; i < 100; ++i) right += co_await ask(server, i) == i;
  server.disconnect_after_sending();
  EXPECT_FALSE(co_await server.receive());
}

TEST(Coroutines, TwoOfThemTalk) {
  EventLoop loop;
  Acceptor acceptor(loop, {test::host(), 0});
  int right = 0;
  loop.spawn(serve_one(loop, acceptor));
  loop.spawn(talk(loop, acceptor.port(), right));
  until(loop, [&] { return right == 100 && loop.connections() == 0; });
}

TEST(Coroutines, ManyAtOnceOnOneThread) {
  EventLoop loop;
  Acceptor acceptor(loop, {test::host(), 0});
  int right = 0;
  for (int i = 0; i < 20; ++i) {
    loop.spawn(serve_one(loop, acceptor));
    loop.spawn(talk(loop, acceptor.port(), right));
  }
  until(loop, [&] { return right == 2000 && loop.connections() == 0; });
}

TEST(Coroutines, EveryWaitHasADeadline) {
  Sides sides({}, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  Acceptor acceptor(*sides.loop, {test::host(), 0});
  bool done = false;
  const auto test = [](Sides& all, Acceptor& nobody, bool& over) -> Task<> {
    EXPECT_FALSE(co_await nobody.next(1ms));
    EXPECT_FALSE(co_await all.b.receive(1ms));
    EXPECT_FALSE(co_await all.b.receive(Deadline::now()));
    const auto waiting = all.a.send("x", {.confirm = true});
    EXPECT_EQ(co_await waiting.settled(20ms), Status::sent);
    EXPECT_TRUE(co_await all.b.receive());
    EXPECT_EQ(co_await waiting, Status::delivered);
    EXPECT_TRUE(co_await all.loop->sleep(1ms));
    Connection unanswered = all.loop->connect({test::host(), nobody.port()}, {});
    try {
      co_await unanswered.established(1ms);
      ADD_FAILURE() << "established";
    } catch (const Error& error) {
      EXPECT_EQ(error.error_number(), ETIMEDOUT);
    }
    over = true;
  };
  sides.loop->spawn(test(sides, acceptor, done));
  sides.wait([&] { return done; });
}

TEST(Coroutines, EveryWaitCanBeStoppedFromAnyThread) {
  Sides sides({}, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  Acceptor acceptor(*sides.loop, {test::host(), 0});
  std::stop_source source;
  int ended = 0;
  const auto accept = [](Acceptor& from, std::stop_token stop, int& count) -> Task<> {
    EXPECT_FALSE(co_await from.next(Deadline::never(), stop));
    EXPECT_FALSE(co_await from.next(Deadline::never(), stop)) << "it stays stopped";
    ++count;
  };
  const auto receive = [](Connection from, std::stop_token stop, int& count) -> Task<> {
    EXPECT_FALSE(co_await from.receive(Deadline::never(), stop));
    EXPECT_EQ(from.state(), State::established);
    ++count;
  };
  const auto sleep = [](EventLoop& loop, std::stop_token stop, int& count) -> Task<> {
    EXPECT_FALSE(co_await loop.sleep(1h, stop));
    ++count;
  };
  sides.loop->spawn(accept(acceptor, source.get_token(), ended));
  sides.loop->spawn(receive(sides.b, source.get_token(), ended));
  sides.loop->spawn(sleep(*sides.loop, source.get_token(), ended));
  sides.loop->step(1ms);
  std::jthread other([&] { source.request_stop(); });
  sides.wait([&] { return ended == 3; });
}

// A program may wait with a deadline again and again, for as long as it runs.
TEST(Coroutines, WaitsThatHaveEndedLeaveNoMemoryBehind) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps memory that was freed";
#endif
  constexpr int waits = 4000;
  constexpr std::size_t few_bytes = 200'000;  // of several hundred for each wait
  Sides sides({}, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  Acceptor acceptor(*sides.loop, {test::host(), 0});
  const auto in_vain = [](Acceptor& from, Connection connection, int count, bool& over) -> Task<> {
    for (int i = 0; i < count; ++i) {
      EXPECT_FALSE(co_await from.next(Deadline::now()));
      EXPECT_FALSE(co_await connection.receive(Deadline::now()));
    }
    over = true;
  };
  const auto run = [&](int count) {
    bool over = false;
    sides.loop->spawn(in_vain(acceptor, sides.b, count, over));
    sides.wait([&] { return over; });
    return mallinfo2().uordblks;
  };
  const std::size_t before = run(100);
  EXPECT_LT(run(waits), before + few_bytes);
  // Those that come are served.
  bool accepted = false;
  const auto serve = [](Acceptor& from, bool& over) -> Task<> {
    over = (co_await from.next()).has_value();
  };
  sides.loop->spawn(serve(acceptor, accepted));
  const Connection client = sides.loop->connect({test::host(), acceptor.port()}, {});
  sides.wait([&] { return accepted; });
}

TEST(Coroutines, AConnectionThatFailsThrowsWhy) {
  EventLoop loop;
  const auto listener = loop.listen({test::host(), 0}, nullptr);
  bool done = false;
  const auto test = [](EventLoop& from, std::uint16_t port, bool& over) -> Task<> {
    Connection connection = from.connect({test::host(), port}, {});
    try {
      co_await connection.established();
      ADD_FAILURE() << "established";
    } catch (const Rejected& rejected) {
      EXPECT_EQ(rejected.reason(), RejectReason::no_handler);
    }
    EXPECT_EQ(co_await connection.send("x"), Status::failed);
    over = true;
  };
  loop.spawn(test(loop, listener.port(), done));
  until(loop, [&] { return done; });
}

TEST(Coroutines, BackPressureIsAwaited) {
  Limits limits;
  limits.credits = 2;
  limits.send_queue_messages = 4;
  std::size_t received = 0;
  Sides sides(limits, {}, [&](Handlers& handlers) {
    handlers.message = [&](Connection&, Received&) { ++received; };
  });
  const auto pour = [](Connection to) -> Task<> {
    for (int i = 0; i < 500;) {
      if (to.send("x")) {
        ++i;
      } else {
        EXPECT_TRUE(co_await to.until_writable());
      }
    }
  };
  sides.loop->spawn(pour(sides.a));
  sides.wait([&] { return received == 500; });
}

TEST(Coroutines, WhatATaskThrowsComesOutOfStep) {
  EventLoop loop;
  const auto test = [](EventLoop& from) -> Task<> {
    co_await from.sleep(1ms);
    throw std::runtime_error("as it should");
  };
  loop.spawn(test(loop));
  EXPECT_THROW(until(loop, [] { return false; }), std::runtime_error);
}

TEST(Coroutines, WhatWaitsWhenTheLoopEndsIsDestroyed) {
  const auto witness = std::make_shared<int>(0);
  {
    auto loop = std::make_unique<EventLoop>();
    Acceptor acceptor(*loop, {test::host(), 0});
    const auto forever = [](Acceptor& from, std::shared_ptr<int>) -> Task<> {
      (void)co_await from.next();
    };
    const auto sleeper = [](EventLoop& on, std::shared_ptr<int>) -> Task<> {
      (void)co_await on.sleep(1h);
    };
    const auto killer = [](std::unique_ptr<EventLoop>& on, std::shared_ptr<int>) -> Task<> {
      co_await on->sleep(1ms);
      on.reset();
    };
    loop->spawn(forever(acceptor, witness));
    loop->spawn(sleeper(*loop, witness));
    loop->spawn(killer(loop, witness));
    while (loop) loop->step(10ms);
  }
  EXPECT_EQ(witness.use_count(), 1);
}

}  // namespace
}  // namespace weft::message::testing
