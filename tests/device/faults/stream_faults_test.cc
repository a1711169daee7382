// When the rules act on a connection, to the byte.
#include "device/faults/stream_faults.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "faults/rules.h"

namespace weft::device {
namespace {

using State = StreamFaults::State;

constexpr std::uint64_t began_ns = 5'000'000'000;

faults::Rules rules_of(std::string_view text) {
  auto rules = faults::parse(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error());
  return rules.ok() ? *rules : faults::Rules{};
}

// A connection that begins, with the rules of a process.
struct Connection {
  explicit Connection(std::string_view rules)
      : plan(rules_of(rules), 1, 0, "", false),
        faults(plan, {.now_ns = began_ns, .queue_pair = 17}, plan.schedule({.now_ns = began_ns})) {}

  // Sends as much of two pieces as may be sent at this time, and returns how much.
  std::size_t send() {
    const std::array pieces{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
    part = faults.shape(pieces, true);
    std::size_t bytes = 0;
    for (const iovec& piece : part) bytes += piece.iov_len;
    return bytes;
  }

  faults::Plan plan;
  StreamFaults faults;
  std::array<unsigned char, 100> first{};
  std::array<unsigned char, 50> second{};
  std::span<const iovec> part;
};

TEST(StreamFaults, EndsAConnectionAtTheByte) {
  Connection connection("FIN at connection after=220B");
  EXPECT_EQ(connection.send(), 150U);
  connection.faults.moved(150);
  EXPECT_EQ(connection.send(), 70U);
  connection.faults.moved(30);  // TCP took less
  connection.faults.on_time(began_ns);
  EXPECT_EQ(connection.faults.state(), State::open);
  EXPECT_EQ(connection.send(), 40U);
  connection.faults.moved(40);
  connection.faults.on_time(began_ns);
  EXPECT_EQ(connection.faults.state(), State::closed);
  EXPECT_EQ(connection.plan.counts()[0].faults, 1U);
}

TEST(StreamFaults, EndsAConnectionInTime) {
  Connection connection("RST at connection after=2s");
  EXPECT_EQ(connection.faults.new_alarm_ns(), began_ns + 2'000'000'000);
  EXPECT_FALSE(connection.faults.new_alarm_ns());
  connection.faults.on_time(began_ns + 1'999'999'999);
  EXPECT_EQ(connection.faults.state(), State::open);
  EXPECT_EQ(connection.send(), 150U);
  connection.faults.on_time(began_ns + 2'000'000'000);
  EXPECT_EQ(connection.faults.state(), State::reset);
}

TEST(StreamFaults, StallsAndResumes) {
  Connection connection("STALL:1s at connection");
  connection.faults.on_time(began_ns);
  EXPECT_EQ(connection.faults.state(), State::silent);
  EXPECT_FALSE(connection.faults.vanished());
  EXPECT_EQ(connection.faults.silent_ns(began_ns + 5), 5U);
  EXPECT_EQ(connection.faults.new_alarm_ns(), began_ns + 1'000'000'000);
  connection.faults.on_time(began_ns + 1'000'000'000);
  EXPECT_EQ(connection.faults.state(), State::open);
}

TEST(StreamFaults, StaysSilent) {
  Connection connection("SILENCE at connection; STALL:1s at connection");
  connection.faults.on_time(began_ns);
  EXPECT_TRUE(connection.faults.vanished());
  EXPECT_FALSE(connection.faults.new_alarm_ns());
  connection.faults.on_time(began_ns + 3'000'000'000);
  EXPECT_EQ(connection.faults.state(), State::silent);
}

// The memory may be the application's, and what TCP did not take is sent again.
TEST(StreamFaults, FlipsABitInACopyOnce) {
  Connection connection("BIT_FLIP at connection");
  connection.faults.on_time(began_ns);
  const auto last_byte = [&connection] {
    const iovec& last = connection.part.back();
    return static_cast<const unsigned char*>(last.iov_base)[last.iov_len - 1];
  };
  EXPECT_EQ(connection.send(), 150U);
  EXPECT_EQ(last_byte(), 1);
  EXPECT_EQ(connection.second.back(), 0);
  connection.faults.moved(149);
  EXPECT_EQ(connection.send(), 150U);
  EXPECT_EQ(last_byte(), 1);
  connection.faults.moved(150);
  EXPECT_EQ(connection.send(), 150U);
  EXPECT_EQ(last_byte(), 0);
}

TEST(StreamFaults, ActsAtOnceWhereARequestIsTheReason) {
  Connection connection("TERMINATE:1/2/5 at write");
  const auto action = connection.plan.at(faults::Point::write, {.now_ns = began_ns});
  ASSERT_TRUE(action);
  connection.faults.add(*action);
  connection.faults.on_time(began_ns);
  EXPECT_EQ(connection.faults.take_terminate(), 0x10205);
  EXPECT_FALSE(connection.faults.take_terminate());
}

TEST(StreamFaults, AReceiverIsNotReadyForATime) {
  Connection connection("RNR:5us at arrival nth=2");
  StreamFaults& faults = connection.faults;
  EXPECT_TRUE(faults.takes_message(began_ns));
  EXPECT_FALSE(faults.takes_message(began_ns + 10));
  EXPECT_EQ(faults.new_alarm_ns(), began_ns + 10 + 5000);
  EXPECT_FALSE(faults.new_alarm_ns());
  EXPECT_FALSE(faults.takes_message(began_ns + 5009));
  EXPECT_FALSE(faults.ready_again(began_ns + 5009));
  EXPECT_TRUE(faults.ready_again(began_ns + 5010));
  EXPECT_TRUE(faults.takes_message(began_ns + 5010));
  EXPECT_FALSE(faults.ready_again(began_ns + 5010));
  EXPECT_TRUE(faults.takes_message(began_ns + 5010));
  EXPECT_EQ(connection.plan.counts()[0].faults, 1U);
}

TEST(StreamFaults, AReceiverIsNeverReadyAgain) {
  Connection connection("RNR at arrival");
  EXPECT_FALSE(connection.faults.takes_message(began_ns));
  EXPECT_FALSE(connection.faults.new_alarm_ns());
  EXPECT_FALSE(connection.faults.takes_message(UINT64_MAX - 1));
}

}  // namespace
}  // namespace weft::device
