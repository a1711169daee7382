// What a link keeps of one connection, and until when.
#include "device/faults/stream_link.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <numeric>

namespace weft::device {
namespace {

constexpr std::uint64_t now_ns = 5'000'000'000;
constexpr std::uint64_t latency_ns = 1'000'000;

struct Connection {
  explicit Connection(const faults::Link& asked = {.latency_ns = latency_ns})
      : link(asked, 1, counters) {}

  std::ptrdiff_t take(std::span<std::byte> bytes, std::uint64_t at_ns = now_ns) {
    const std::size_t half = bytes.size() / 2;
    const std::array pieces{iovec{bytes.data(), half},
                            iovec{bytes.data() + half, bytes.size() - half}};
    return link.take(pieces, at_ns);
  }
  std::ptrdiff_t deliver(std::span<std::byte> to, std::uint64_t at_ns) {
    const iovec piece{to.data(), to.size()};
    return link.deliver({&piece, 1}, at_ns);
  }

  LinkCounters counters;
  StreamLink link;
};

std::vector<std::byte> numbered(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(StreamLink, TakesACopyAndGivesItWhenItIsDue) {
  Connection connection;
  auto bytes = numbered(100);
  const auto sent = bytes;
  ASSERT_EQ(connection.take(bytes), 100);
  std::ranges::fill(bytes, std::byte{0xEE});  // the sender may use its memory again
  DelayedBytes& outgoing = connection.link.outgoing();
  EXPECT_TRUE(outgoing.due(now_ns + latency_ns - 1).empty());
  EXPECT_EQ(connection.link.next_ns(now_ns), now_ns + latency_ns);
  auto due = outgoing.due(now_ns + latency_ns);
  ASSERT_EQ(due.size(), 100U);
  EXPECT_TRUE(std::ranges::equal(due, sent));
  outgoing.remove(40);  // the socket took less
  due = outgoing.due(now_ns + latency_ns);
  ASSERT_EQ(due.size(), 60U);
  EXPECT_EQ(due.front(), std::byte{40});
  outgoing.remove(60);
  EXPECT_EQ(connection.link.next_ns(now_ns), DelayedBytes::never_ns);
  EXPECT_EQ(connection.counters.delayed_bytes, 100U);
}

TEST(StreamLink, DeliversTheEndBehindTheLastByte) {
  Connection connection;
  std::array<std::byte, 64> to{};
  connection.link.arrived(numbered(50), now_ns);
  connection.link.arrived(numbered(30), now_ns + 10);
  connection.link.end(0);
  EXPECT_FALSE(connection.link.reads());
  EXPECT_EQ(connection.deliver(to, now_ns + latency_ns - 1), -EAGAIN);
  EXPECT_EQ(connection.deliver(to, now_ns + latency_ns), 50);
  EXPECT_EQ(to[49], std::byte{49});
  EXPECT_EQ(connection.deliver(to, now_ns + latency_ns), -EAGAIN);
  EXPECT_EQ(connection.deliver(std::span(to).first(20), now_ns + latency_ns + 10), 20);
  // The rest is due already: it is delivered in the next turn.
  const std::uint64_t late_ns = now_ns + latency_ns + 10;
  EXPECT_GT(connection.link.next_ns(late_ns), late_ns);
  EXPECT_LE(connection.link.next_ns(late_ns), late_ns + 100'000);
  EXPECT_EQ(connection.deliver(to, late_ns), 10);
  EXPECT_EQ(connection.deliver(to, late_ns), 0);
  EXPECT_EQ(connection.link.next_ns(late_ns), DelayedBytes::never_ns);
}

TEST(StreamLink, DeliversAnErrorLikewise) {
  Connection connection;
  std::array<std::byte, 64> to{};
  connection.link.end(-ECONNRESET);
  EXPECT_LE(connection.link.next_ns(now_ns), now_ns + latency_ns);
  EXPECT_EQ(connection.deliver(to, now_ns), -ECONNRESET);
}

TEST(StreamLink, IsFullAtSomeTime) {
  Connection connection;
  auto bytes = numbered(1 << 20);
  std::size_t taken = 0;
  while (connection.take(bytes) > 0) taken += bytes.size();
  EXPECT_GE(taken, std::size_t{16} << 20);
  EXPECT_LT(taken, std::size_t{18} << 20);
  connection.link.outgoing().remove(1 << 20);
  EXPECT_GT(connection.take(bytes), 0);
}

TEST(StreamLink, CountsStalls) {
  Connection connection({.loss = 0.5});
  auto bytes = numbered(100 * 1448);
  ASSERT_GT(connection.take(bytes), 0);
  EXPECT_GT(connection.counters.stalls, 10U);
  EXPECT_LT(connection.counters.stalls, 90U);
  EXPECT_GE(connection.link.next_ns(now_ns), now_ns + connection.counters.stalls * 200'000'000);
}

// A peer that sends single bytes gets less room for them, because each is kept in memory of its
// own.
TEST(StreamLink, SingleBytesCountWithWhatTheyOccupy) {
  Connection connection;
  const std::array one{std::byte{1}};
  std::size_t bytes = 0;
  while (connection.link.reads()) {
    connection.link.arrived(one, now_ns);
    ++bytes;
  }
  EXPECT_LE(bytes * DelayedBytes::part_bytes, DelayedBytes::most_bytes);
  EXPECT_GT(bytes, DelayedBytes::most_bytes / DelayedBytes::part_bytes / 2);
}

}  // namespace
}  // namespace weft::device
