// Messages between two connections: sizes, order, statuses, memory, back-pressure.
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "message/sides.h"
#include "support/host.h"
#include "support/needs.h"

namespace weft::message::testing {
namespace {

TEST(Message, GoesBothWaysAndEachIsSentOnce) {
  Sides sides;
  EXPECT_TRUE(sides.a.send("hello", {.type = 3, .tag = 7}));
  EXPECT_TRUE(sides.b.send("and back", {.tag = 8, .confirm = true}));
  sides.wait([&] {
    return sides.a_log.sent.size() == 1 && sides.b_log.delivered.size() == 1 &&
           sides.b_log.texts.size() == 1;
  });
  EXPECT_EQ(sides.b_log.texts, std::vector<std::string>{"hello"});
  EXPECT_EQ(sides.a_log.texts, std::vector<std::string>{"and back"});
  EXPECT_EQ(sides.a_log.sent, std::vector<std::uint64_t>{7});
  EXPECT_TRUE(sides.a_log.delivered.empty());
  EXPECT_EQ(sides.b_log.sent, std::vector<std::uint64_t>{8});
  EXPECT_EQ(sides.b_log.delivered, std::vector<std::uint64_t>{8});
  const auto statistics = sides.a.statistics();
  EXPECT_EQ(statistics.messages_sent, 1U);
  EXPECT_EQ(statistics.bytes_sent, 5U);
  EXPECT_EQ(statistics.messages_received, 1U);
  EXPECT_EQ(statistics.bytes_received, 8U);
}

TEST(Message, CarriesTypeTagAndLength) {
  std::vector<std::array<std::uint64_t, 3>> seen;
  Sides sides({}, {}, [&](Handlers& handlers) {
    handlers.message = [&](Connection&, Received& got) {
      seen.push_back({got.type(), got.tag(), got.size_bytes()});
    };
  });
  const std::vector<std::byte> bytes(100'000);
  const std::span all(bytes);
  sides.a.send(all.first(0), {.type = 1, .tag = ~std::uint64_t{0}});
  sides.a.send(all.first(4096), {.type = 0xFFFFFFFF, .tag = 2});
  sides.a.send(all, {.type = 3, .tag = 3});
  sides.wait([&] { return seen.size() == 3; });
  EXPECT_EQ(seen[0], (std::array<std::uint64_t, 3>{1, ~std::uint64_t{0}, 0}));
  EXPECT_EQ(seen[1], (std::array<std::uint64_t, 3>{0xFFFFFFFF, 2, 4096}));
  EXPECT_EQ(seen[2], (std::array<std::uint64_t, 3>{3, 3, 100'000}));
}

// Ten thousand messages of all sizes in both directions: in order, and each `sent` once.
TEST(Message, TenThousandOfAllSizesInOrder) {
  for (const auto seed : test::seeds(1)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    Limits limits;
    limits.max_message_bytes = 200'000;
    limits.eager_bytes = 2000;
    const std::uint64_t count = test::turns(10'000, 1000);
    const auto data = pattern(400'000);
    const auto part = [&](std::uint64_t tag) {
      // A pattern that the receiver can compute.
      const std::size_t bytes = tag % 50 == 0 ? 200'000 - tag % 7 : (tag * 7919) % 4000;
      return std::span(data).subspan(tag, tag % 1000 == 1 ? 0 : bytes);
    };
    std::array<std::uint64_t, 2> received{};
    std::array<std::uint64_t, 2> sent{};
    std::array<std::vector<char>, 2> told{std::vector<char>(count), std::vector<char>(count)};
    bool all_right = true;
    const auto watch = [&](int side) {
      return [&, side](Handlers& handlers) {
        handlers.message = [&, side](Connection&, Received& got) {
          all_right &= got.tag() == received[side];
          all_right &= std::ranges::equal(got.bytes(), part(received[side]));
          ++received[side];
        };
        handlers.sent = [&, side](Connection&, const Sending& message) {
          all_right &= ++told[side][message.tag()] == 1;
          ++sent[side];
        };
      };
    };
    Sides sides(limits, watch(0), watch(1));
    std::array<std::uint64_t, 2> next{};
    const auto send_some = [&](int side, Connection& connection) {
      while (next[side] < count) {
        const auto message = connection.send(part(next[side]), {.tag = next[side]});
        if (!message) {
          all_right &= message.error_number() == EAGAIN;
          return;
        }
        ++next[side];
        if (random.chance(20)) return;
      }
    };
    sides.wait([&] {
      send_some(0, sides.a);
      send_some(1, sides.b);
      return received[0] == count && received[1] == count && sent[0] == count && sent[1] == count;
    });
    EXPECT_TRUE(all_right);
    EXPECT_TRUE(sides.a_log.failed.empty());
  }
}

TEST(Message, TooLongIsRefusedAtOnceByTheLimitOfEitherSide) {
  Limits limits;
  limits.max_message_bytes = 1000;
  limits.pool_bytes = 1 << 20;
  EventLoop small(limits);
  EventLoop big;
  Log small_log;
  Log big_log;
  auto listener =
      big.listen({test::host(), 0}, [&](Request request) { request.accept(big_log.handlers()); });
  small.connect({test::host(), listener.port()}, small_log.handlers());
  until(small, big, [&] { return small_log.established && big_log.established; });
  EXPECT_EQ(big_log.connection.max_message_bytes(), 1000U);
  const std::vector<std::byte> bytes(1001);
  for (Connection& connection : {std::ref(small_log.connection), std::ref(big_log.connection)}) {
    const auto refused = connection.send(bytes);
    EXPECT_FALSE(refused);
    EXPECT_EQ(refused.error_number(), EMSGSIZE);
    EXPECT_EQ(refused.status(), Status::failed);
    EXPECT_TRUE(connection.send(std::span(bytes).first(1000)));
  }
  until(small, big, [&] { return small_log.texts.size() == 1 && big_log.texts.size() == 1; });
}

TEST(Message, IsGatheredFromTheUsersMemory) {
  Sides sides;
  auto data = pattern(300'000);
  const auto region = sides.a.domain().register_memory(std::span(data));
  const std::array small{region.slice(10, 20), region.slice(0, 0), region.slice(1000, 30)};
  const std::array large{region.slice(1, 100'000), region.slice(200'000, 77)};
  EXPECT_TRUE(sides.a.send(small, {.tag = 1}));
  EXPECT_TRUE(sides.a.send(large, {.tag = 2}));
  std::vector<LocalSlice> many(17, region.slice(0, 1));
  EXPECT_EQ(sides.a.send(many).error_number(), EINVAL);
  many.pop_back();
  EXPECT_TRUE(sides.a.send(many, {.tag = 3}));
  sides.wait([&] { return sides.a_log.sent.size() == 3 && sides.b_log.texts.size() == 3; });
  const std::string all = text_of(data);
  EXPECT_EQ(sides.b_log.texts[0], all.substr(10, 20) + all.substr(1000, 30));
  EXPECT_EQ(sides.b_log.texts[1], all.substr(1, 100'000) + all.substr(200'000, 77));
  EXPECT_EQ(sides.b_log.texts[2], std::string(16, all[0]));
}

// Some adapters gather less than that: the kernel's siw 6 pieces.
TEST(Message, OfManyPiecesIsSentByEveryDevice) {
  Sides sides;
  auto data = pattern(9000);
  const auto region = sides.a.domain().register_memory(std::span(data));
  const std::string all = text_of(data);
  std::vector<std::string> expected;
  for (std::size_t pieces = 1; pieces <= max_pieces; ++pieces) {
    std::vector<LocalSlice> list;
    std::string text;
    for (std::size_t i = 0; i < pieces; ++i) {
      list.push_back(region.slice(i * 500, 400 + i));
      text += all.substr(i * 500, 400 + i);
    }
    EXPECT_TRUE(sides.a.send(list));
    expected.push_back(text);
  }
  sides.wait([&] { return sides.b_log.texts.size() == expected.size(); });
  EXPECT_EQ(sides.b_log.texts, expected);
  // Until then the memory must stay registered.
  sides.wait([&] { return sides.a_log.sent.size() == expected.size(); });
}

TEST(Message, ABufferMayBeFreedBeforeItIsSent) {
  Sides sides;
  std::vector<std::string> expected;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5000}, std::size_t{70'000}}) {
    Buffer buffer = sides.a.allocate(bytes + 10);
    EXPECT_EQ(buffer.size_bytes(), bytes + 10);
    buffer.truncate(bytes);
    std::ranges::copy(pattern(bytes, bytes + 1), buffer.bytes().begin());
    expected.push_back(text_of(buffer.bytes()));
    EXPECT_TRUE(sides.a.send(buffer));
  }
  sides.wait([&] { return sides.b_log.texts.size() == 3; });
  EXPECT_EQ(sides.b_log.texts, expected);
}

TEST(Message, OneBufferIsSentSeveralTimes) {
  Sides sides;
  const Buffer buffer = sides.a.allocate(100'000);
  std::ranges::copy(pattern(100'000), buffer.bytes().begin());
  const auto first = sides.a.send(buffer);
  const auto second = sides.a.send(buffer);
  EXPECT_FALSE(first == second);
  EXPECT_EQ(first.status(), Status::waiting);
  sides.wait([&] { return second.status() == Status::sent; });
  EXPECT_EQ(first.status(), Status::sent);
  sides.wait([&] { return sides.b_log.texts.size() == 2; });
  EXPECT_EQ(sides.b_log.texts[1], text_of(buffer.bytes()));
}

TEST(Message, MemoryOfAnotherLoopIsRefused) {
  Sides one;
  Sides other;
  EXPECT_EQ(one.a.send(other.a.allocate(10)).error_number(), EINVAL);
}

TEST(Message, KeptBuffersOutliveEverything) {
  std::vector<Buffer> kept;
  {
    Sides sides({}, {}, [&](Handlers& handlers) {
      handlers.message = [&](Connection&, Received& got) {
        kept.push_back(got.keep());
        EXPECT_EQ(got.size_bytes(), 0U);
      };
    });
    // More than there are receives: each one that is kept is replaced.
    for (std::uint64_t i = 0; i < 100; ++i) {
      EXPECT_TRUE(sides.a.send(pattern(i % 10 == 0 ? 20'000 : 100, i + 1)));
    }
    sides.wait([&] { return kept.size() == 100; });
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(std::ranges::equal(kept[i].bytes(), pattern(i % 10 == 0 ? 20'000 : 100, i + 1)));
  }
}

// While the receiver does nothing, sends fail with EAGAIN; then all messages arrive.
TEST(Message, AStalledReceiverStallsItsSenderAndNothingIsLost) {
  Limits limits;
  limits.credits = 4;
  limits.send_queue_messages = 50;
  EventLoop sending(limits);
  EventLoop receiving(limits);
  Log from;
  Log to;
  auto listener =
      receiving.listen({test::host(), 0}, [&](Request request) { request.accept(to.handlers()); });
  sending.connect({test::host(), listener.port()}, from.handlers());
  until(sending, receiving, [&] { return from.established && to.established; });
  std::uint64_t taken = 0;
  // The receiver's loop is not stepped from here on.
  while (true) {
    const auto message = from.connection.send("x", {.tag = taken});
    if (!message) {
      EXPECT_EQ(message.error_number(), EAGAIN);
      break;
    }
    ++taken;
    sending.step();
  }
  EXPECT_EQ(taken, 54U);  // four under way, fifty in the queue
  EXPECT_FALSE(from.connection.writable());
  until(sending, [&] { return from.sent.size() == 4; });
  sending.step(10ms);
  EXPECT_EQ(from.sent.size(), 4U);
  EXPECT_EQ(from.writable, 0);
  EXPECT_EQ(from.connection.statistics().credit_waits, 1U);
  EXPECT_GT(from.connection.statistics().waited_for_credits, 0ns);
  EXPECT_EQ(from.connection.statistics().messages_waiting, 50U);
  until(sending, receiving, [&] { return to.texts.size() == taken; });
  until(sending, receiving, [&] { return from.sent.size() == taken; });
  EXPECT_EQ(from.writable, 1);
  EXPECT_TRUE(from.failed.empty());
}

TEST(Message, KeepingEverythingStallsThePeerWithinTheLimit) {
  Limits limits;
  limits.credits = 4;
  limits.eager_bytes = 1000;
  limits.max_message_bytes = 100'000;
  limits.pool_bytes = 100'000;
  std::vector<Buffer> kept;
  Sides sides(limits, {}, [&](Handlers& handlers) {
    handlers.message = [&](Connection&, Received& got) { kept.push_back(got.keep()); };
  });
  constexpr std::size_t count = 500;
  for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(sides.a.send(pattern(900)));
  const auto settle = [&] {
    while (sides.loop->step(50ms) > 0) continue;
  };
  settle();
  EXPECT_LT(kept.size(), 120U);
  EXPECT_GT(sides.a.statistics().messages_waiting, 300U);
  std::size_t seen = 0;
  sides.wait([&] {
    seen += kept.size();
    kept.clear();
    return seen == count;
  });
}

TEST(Message, LongMessagesWaitForThePool) {
  Limits limits;
  limits.max_message_bytes = 1'000'000;
  limits.pool_bytes = 1'000'000;
  std::vector<Buffer> kept;
  Sides sides(limits, {}, [&](Handlers& handlers) {
    handlers.message = [&](Connection&, Received& got) { kept.push_back(got.keep()); };
  });
  const auto data = pattern(600'000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(sides.a.send(data));
  sides.wait([&] { return kept.size() == 1; });
  while (sides.loop->step(20ms) > 0) continue;
  EXPECT_EQ(kept.size(), 1U);
  for (int i = 0; i < 3; ++i) {
    sides.wait([&] { return kept.size() == 1; });
    EXPECT_TRUE(std::ranges::equal(kept[0].bytes(), data));
    kept.clear();
  }
  sides.wait([&] { return sides.a_log.sent.size() == 3; });
}

TEST(Message, WithoutACallbackMessagesWaitToBeTaken) {
  Sides sides({}, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  EXPECT_FALSE(sides.b.try_receive());
  for (std::uint64_t i = 0; i < 40; ++i) {
    sides.a.send(pattern(i % 2 ? 10 : 9000, i + 1), {.tag = i, .confirm = true});
  }
  std::vector<Received> taken;
  sides.wait([&] {
    if (auto got = sides.b.try_receive()) taken.push_back(std::move(*got));
    return taken.size() == 40;
  });
  for (std::uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(taken[i].tag(), i);
    EXPECT_TRUE(std::ranges::equal(taken[i].bytes(), pattern(i % 2 ? 10 : 9000, i + 1)));
  }
  sides.wait([&] { return sides.a_log.delivered.size() == 40; });
}

TEST(Message, AHandlerThatComesLaterGetsWhatHasWaited) {
  Sides sides({}, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  sides.a.send("early");
  sides.wait([&] { return sides.a_log.sent.size() == 1; });
  sides.b.set_handlers(sides.b_log.handlers());
  sides.wait([&] { return sides.b_log.texts.size() == 1; });
}

TEST(Message, TheSmallestLimitsWork) {
  Limits limits;
  limits.credits = 1;
  limits.eager_bytes = 0;
  limits.send_queue_messages = 1;
  Sides sides(limits);
  int sent = 0;
  sides.wait([&] {
    if (sent < 50 && sides.a.send(std::string(sent, 'x'), {.confirm = true})) {
      (void)sides.b.send("y", {.confirm = true});
      ++sent;
    }
    return sides.a_log.delivered.size() == 50 && sides.b_log.texts.size() == 50;
  });
}

TEST(Message, AsLargeAsTheLargestPiecesNeedSeveralReads) {
  Sides sides;
  const auto data = pattern(40 << 20);
  sides.a.send(data, {.confirm = true});
  sides.wait([&] { return sides.a_log.delivered.size() == 1; });
  EXPECT_TRUE(sides.b_log.texts.at(0) == text_of(data));
}

TEST(Message, FromACallbackIsAnEcho) {
  Sides sides({}, {}, [](Handlers& handlers) {
    handlers.message = [](Connection& from, Received& got) { from.send(got.bytes()); };
  });
  for (int i = 0; i < 200; ++i) sides.a.send(std::to_string(i));
  sides.wait([&] { return sides.a_log.texts.size() == 200; });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(sides.a_log.texts[i], std::to_string(i));
}

}  // namespace
}  // namespace weft::message::testing
