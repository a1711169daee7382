// Short messages that wait together share frames, which the application does not notice.
#include <algorithm>
#include <array>

#include "message/frame_wire.h"
#include "message/scripted_peer.h"
#include "message/sides.h"
#include "support/host.h"

namespace weft::message::testing {
namespace {

using detail::Frame;
using detail::Kind;

// Calls `send` in a callback: what it sends is posted when the callback has returned.
void send_in_one_turn(Sides& sides, const std::function<void(Connection&)>& send) {
  bool done = false;
  Handlers handlers = sides.a_log.handlers();
  handlers.message = [&, send](Connection& connection, Received&) {
    send(connection);
    done = true;
  };
  sides.a.set_handlers(std::move(handlers));
  sides.b.send("now");
  sides.wait([&] { return done; });
}

TEST(Joined, ManyShortMessagesBetweenLongOnesAreInOrderAndFewFrames) {
  Sides sides;
  std::vector<std::string> expected;
  send_in_one_turn(sides, [&](Connection& connection) {
    for (std::uint64_t i = 0; i < 900; ++i) {
      const std::size_t bytes = i % 100 == 50 ? 20'000 + i : i % 100 == 51 ? 8192 : i % 70;
      expected.push_back(text_of(pattern(bytes, i + 1)));
      EXPECT_TRUE(connection.send(expected.back(), {.tag = i, .confirm = i % 3 == 0}));
    }
  });
  sides.wait(
      [&] { return sides.b_log.texts.size() == 900 && sides.a_log.delivered.size() == 300; });
  EXPECT_TRUE(sides.b_log.texts == expected);
  sides.wait([&] { return sides.a_log.sent.size() == 900; });
  EXPECT_LT(sides.a.statistics().frames_sent, 60U);
  EXPECT_EQ(sides.a.statistics().messages_sent, 900U);
}

TEST(Joined, AMessageWithNothingBeforeItDoesNotWait) {
  Sides sides;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Sending alone = sides.a.send("alone");
    // The message leaves already, although the loop was not stepped.
    EXPECT_EQ(sides.a.statistics().frames_sent, i + 1);
    EXPECT_EQ(sides.a.statistics().messages_waiting, 0U);
    sides.wait([&] { return alone.status() == Status::sent; });
  }
  sides.wait([&] { return sides.b_log.texts.size() == 5; });
}

// The first one leaves at once; the others share the frame of the next step.
TEST(Joined, MessagesOfABurstWaitForTheNextStep) {
  Sides sides;
  for (int i = 0; i < 20; ++i) sides.a.send("burst");
  EXPECT_EQ(sides.a.statistics().frames_sent, 1U);
  EXPECT_EQ(sides.a.statistics().messages_waiting, 19U);
  sides.loop->step();
  EXPECT_EQ(sides.a.statistics().messages_waiting, 0U);
  sides.wait([&] { return sides.b_log.texts.size() == 20; });
  EXPECT_EQ(sides.a.statistics().frames_sent, 2U);
}

// Where messages of one connection wait for the next step, those of others do so as well, until the
// program goes on to another connection.
TEST(Joined, BurstsOnSeveralConnectionsAreOneFrameEach) {
  Sides sides;
  Log second_log;
  Connection second =
      sides.loop->connect({test::host(), sides.listener->port()}, second_log.handlers());
  sides.wait([&] { return second_log.established == 1 && sides.b_log.established == 2; });
  for (int i = 0; i < 5; ++i) sides.a.send("first");
  for (int i = 0; i < 20; ++i) second.send("second");
  EXPECT_EQ(sides.a.statistics().frames_sent, 2U);
  EXPECT_EQ(sides.a.statistics().messages_waiting, 0U);
  EXPECT_EQ(second.statistics().frames_sent, 0U);
  EXPECT_EQ(second.statistics().messages_waiting, 20U);
  sides.loop->step();
  EXPECT_EQ(second.statistics().messages_waiting, 0U);
  sides.wait([&] { return sides.b_log.texts.size() == 25 && second_log.sent.size() == 20; });
  EXPECT_EQ(sides.a.statistics().frames_sent, 2U);
  EXPECT_EQ(second.statistics().frames_sent, 1U);
  // Nothing waits any more.
  second.send("alone");
  EXPECT_EQ(second.statistics().frames_sent, 2U);
  sides.wait([&] { return sides.b_log.texts.size() == 26; });
}

// A program that sends one message on each connection in turn comes back with more for the same
// frame.
TEST(Joined, MessagesInTurnShareTheFrameOfTheNextStep) {
  Sides sides;
  Log second_log;
  Connection second =
      sides.loop->connect({test::host(), sides.listener->port()}, second_log.handlers());
  sides.wait([&] { return second_log.established == 1 && sides.b_log.established == 2; });
  for (int i = 0; i < 20; ++i) {
    sides.a.send("first");
    second.send("second");
  }
  // The first message of each, before any other one has waited.
  EXPECT_EQ(sides.a.statistics().frames_sent, 1U);
  EXPECT_EQ(second.statistics().frames_sent, 1U);
  sides.wait([&] {
    return sides.b_log.texts.size() == 40 && sides.a_log.sent.size() == 20 &&
           second_log.sent.size() == 20;
  });
  EXPECT_EQ(sides.a.statistics().frames_sent, 2U);
  EXPECT_EQ(second.statistics().frames_sent, 2U);
}

// Without callbacks for statuses, what a burst has sent is settled before the next step where the
// device completes it at once.
TEST(Joined, BurstsWithoutCallbacksAreSettled) {
  const auto without_statuses = [](Handlers& handlers) {
    handlers.sent = handlers.delivered = handlers.failed = nullptr;
  };
  Sides sides({}, without_statuses, {});
  Log second_log;
  Handlers handlers = second_log.handlers();
  without_statuses(handlers);
  Connection second = sides.loop->connect({test::host(), sides.listener->port()}, handlers);
  sides.wait([&] { return second_log.established == 1 && sides.b_log.established == 2; });
  std::vector<Sending> sent;
  std::vector<std::string> expected;
  for (int round = 0; round < 50; ++round) {
    for (Connection* const connection : {&sides.a, &second}) {
      for (int i = 0; i < 8; ++i) {
        expected.push_back(std::to_string(expected.size()));
        sent.push_back(connection->send(expected.back()));
        ASSERT_TRUE(sent.back());
      }
    }
    if (round % 3 == 0) sides.loop->step();
  }
  sides.wait([&] { return sides.b_log.texts.size() == expected.size(); });
  sides.wait([&] {
    return std::ranges::all_of(sent, [](const Sending& m) { return m.status() == Status::sent; });
  });
  std::ranges::sort(expected);
  std::ranges::sort(sides.b_log.texts);
  EXPECT_EQ(sides.b_log.texts, expected);
  sides.wait([&] {
    return sides.a.statistics().messages_sent + second.statistics().messages_sent == sent.size();
  });
}

// What completes when the burst leaves is work of the step, which returns: its program may wait for
// just that.
TEST(Joined, AStepThatSettlesABurstReturns) {
  EventLoop receiver;
  Log accepted;
  const auto listener = receiver.listen(
      {test::host(), 0}, [&](Request request) { request.accept(accepted.handlers()); });
  EventLoop sender;
  std::array<int, 2> established{};
  std::vector<Connection> connections;
  for (int& one : established) {
    Handlers handlers;
    handlers.established = [&](Connection&) { ++one; };
    connections.push_back(sender.connect({test::host(), listener.port()}, handlers));
  }
  until(sender, receiver,
        [&] { return established[0] + established[1] == 2 && accepted.established == 2; });
  while (sender.step() + receiver.step() > 0) continue;
  Sending last;
  for (Connection& connection : connections) {
    for (int i = 0; i < 8; ++i) last = connection.send("text");
  }
  const Deadline deadline = test_timeout;
  while (last.status() == Status::waiting && !deadline.passed()) {
    EXPECT_GT(sender.step(deadline), 0U);
  }
  EXPECT_EQ(last.status(), Status::sent);
  until(sender, receiver, [&] { return accepted.texts.size() == 16; });
}

TEST(Joined, PiecesOfTheUsersMemoryAreJoined) {
  Sides sides;
  auto data = pattern(1000);
  const auto region = sides.a.domain().register_memory(std::span(data));
  send_in_one_turn(sides, [&](Connection& connection) {
    for (std::size_t i = 0; i < 50; ++i) {
      const std::array pieces{region.slice(i, 3), region.slice(0, 0), region.slice(500 + i, i)};
      EXPECT_TRUE(connection.send(pieces));
    }
  });
  sides.wait([&] { return sides.b_log.texts.size() == 50; });
  const std::string all = text_of(data);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sides.b_log.texts[i], all.substr(i, 3) + all.substr(500 + i, i));
  }
  EXPECT_LT(sides.a.statistics().frames_sent, 5U);
}

// The application keeps some of the messages of one receive: the first, the last, or others.
TEST(Joined, WhatIsKeptOfAFrameStaysAsItWas) {
  std::vector<Buffer> kept;
  std::uint64_t seen = 0;
  {
    Limits limits;
    limits.credits = 3;
    Sides sides(limits, {}, [&](Handlers& handlers) {
      handlers.message = [&](Connection&, Received& got) {
        if (seen++ % 7 == 0) kept.push_back(got.keep());
      };
    });
    for (int round = 0; round < 4; ++round) {
      send_in_one_turn(sides, [&](Connection& connection) {
        for (std::uint64_t i = 0; i < 350; ++i) {
          EXPECT_TRUE(connection.send(pattern(40, round * 350 + i + 1)));
        }
      });
      sides.wait([&] { return seen == (round + 1) * 350U; });
    }
  }
  ASSERT_EQ(kept.size(), 200U);
  for (std::uint64_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(kept[i].bytes(), pattern(40, i * 7 + 1)));
  }
}

TEST(Joined, TheyMayBeTakenOneByOne) {
  Limits limits;
  limits.credits = 2;
  Sides sides(limits, {}, [](Handlers& handlers) { handlers.message = nullptr; });
  send_in_one_turn(sides, [&](Connection& connection) {
    for (std::uint64_t i = 0; i < 500; ++i) {
      EXPECT_TRUE(connection.send(pattern(60, i + 1), {.tag = i, .confirm = true}));
    }
  });
  std::vector<Received> taken;
  sides.wait([&] {
    while (auto got = sides.b.try_receive()) {
      EXPECT_EQ(got->tag(), taken.size());
      taken.push_back(std::move(*got));
    }
    return taken.size() == 500;
  });
  for (std::uint64_t i = 0; i < 500; ++i) {
    EXPECT_TRUE(std::ranges::equal(taken[i].bytes(), pattern(60, i + 1)));
  }
  sides.wait([&] { return sides.a_log.delivered.size() == 500; });
}

TEST(Joined, ADisconnectInTheMiddleOfAFrameEndsItThere) {
  Sides sides({}, {}, [](Handlers& handlers) {
    handlers.message = [count = 0](Connection& from, Received&) mutable {
      if (++count == 30) from.disconnect();
      EXPECT_LE(count, 30);
    };
  });
  std::vector<Sending> messages;
  send_in_one_turn(sides, [&](Connection& connection) {
    for (std::uint64_t i = 0; i < 400; ++i) {
      messages.push_back(connection.send("x", {.tag = i, .confirm = true}));
    }
  });
  sides.wait([&] { return sides.a_log.endings.size() == 1; });
  std::size_t delivered = 0;
  for (const auto& message : messages) {
    EXPECT_NE(message.status(), Status::waiting);
    delivered += message.status() == Status::delivered;
  }
  EXPECT_LE(delivered, 30U);
  EXPECT_EQ(sides.a_log.delivered.size(), delivered);
  EXPECT_EQ(sides.a_log.failed.size(), 400 - delivered);
}

// --- Frames of a scripted peer -------------------------------------------------------------------

// Sends one frame to a connection. Records the messages that were handed over, and the error.
struct Outcome {
  std::vector<std::string> texts;
  std::vector<int> errors;
};

Outcome outcome_of(const std::vector<std::byte>& frame) {
  EventLoop loop;
  Log log;
  const auto listener =
      loop.listen({test::host(), 0}, [&](Request request) { request.accept(log.handlers()); });
  ScriptedPeer peer([&] { loop.step(1ms); });
  peer.connect(listener.port());
  until(loop, [&] { return log.established == 1; });
  peer.send(frame);
  until(loop, [&] { return log.endings.size() + log.texts.size() > 0; });
  return {log.texts, log.error_numbers};
}

std::vector<std::byte> joined_frame(const std::vector<std::string>& texts) {
  Frame frame;
  frame.kind = Kind::joined;
  for (const auto& text : texts) EXPECT_TRUE(frame.join({0, 0, false, text.size(), 0}, 8000));
  std::vector<std::byte> bytes(8000);
  bytes.resize(frame.encode(bytes));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::memcpy(&bytes[frame.parts[i].offset], texts[i].data(), texts[i].size());
  }
  return bytes;
}

TEST(JoinedFromAStranger, IsTakenApart) {
  const auto got = outcome_of(joined_frame({"one", "", "three"}));
  EXPECT_EQ(got.texts, (std::vector<std::string>{"one", "", "three"}));
  EXPECT_TRUE(got.errors.empty());
}

TEST(JoinedFromAStranger, EndsTheConnectionWhenMalformed) {
  const auto refused = [](const std::vector<std::byte>& frame) {
    const auto got = outcome_of(frame);
    EXPECT_EQ(got.errors, std::vector<int>{EPROTO});
    EXPECT_TRUE(got.texts.empty());
  };
  auto frame = joined_frame({"one", "two"});
  frame.resize(16);
  refused(frame);  // without a message
  frame = joined_frame({"one", "two"});
  frame.pop_back();
  refused(frame);  // the last message is cut
  frame = joined_frame({"one", "two"});
  store_be(&frame[20], std::uint32_t{0x7FFFFFFF});
  refused(frame);  // a length beyond the end
  frame = joined_frame(std::vector<std::string>(256));
  frame.resize(frame.size() + 16);
  refused(frame);  // too many messages
}

// Copies of short messages: alone in a frame, with others, and offered because the limit for frames
// is shorter still.
TEST(Joined, ShortCopiesArriveAsTheyWere) {
  for (const std::uint32_t eager_bytes : {8192U, 16U}) {
    Limits limits;
    limits.eager_bytes = eager_bytes;
    Sides sides(limits);
    const std::string all = text_of(pattern(200));
    std::vector<std::string> sent;
    const auto send = [&](std::size_t bytes) {
      sent.push_back(all.substr(bytes / 2, bytes));
      // The message has a copy of its own.
      std::string gone = sent.back();
      EXPECT_TRUE(sides.a.send(gone));
      std::ranges::fill(gone, '!');
    };
    for (std::size_t bytes = 0; bytes < 140; ++bytes) {
      send(bytes);
      if (bytes % 3 == 0) sides.wait([&] { return sides.b_log.texts.size() == sent.size(); });
    }
    sides.wait([&] { return sides.b_log.texts.size() == sent.size(); });
    EXPECT_EQ(sides.b_log.texts, sent) << eager_bytes;
  }
}

}  // namespace
}  // namespace weft::message::testing
