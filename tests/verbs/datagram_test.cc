// Queue pairs without a fixed peer: datagrams, replies, groups; and unreliable connections.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>

#include "support/device.h"
#include "support/needs.h"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::chrono::seconds patience{30};
constexpr std::uint32_t key = 0x1234;

class Datagram : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_NEEDS(domain.queue_pair(queue, queue, IBV_QPT_UD).build());
    a_.emplace(make());
    b_.emplace(make());
  }

  [[nodiscard]] const QueuePair& a() const { return *a_; }
  [[nodiscard]] const QueuePair& b() const { return *b_; }
  QueuePair make() {
    auto builder = domain.queue_pair(queue, queue, IBV_QPT_UD);
    builder.max_send_requests(4).max_receive_requests(4);
    return builder.build().activate(key);
  }
  Completion await() {
    std::array<Completion, 1> one;
    EXPECT_EQ(queue.wait(one, patience).size(), 1U) << "no completion";
    return one[0];
  }
  // A send and the receive that it completes come in any order.
  Completion await_receive() {
    Completion first = await();
    Completion second = await();
    EXPECT_NE(first.is_receive(), second.is_receive());
    return first.is_receive() ? first : second;
  }
  std::span<const std::uint8_t, grh_bytes> front() {
    return std::span<const std::uint8_t, grh_bytes>(target.elements().first(grh_bytes));
  }

  Context context = test::open_device();
  ProtectionDomain domain = context.create_domain();
  CompletionQueue queue = context.create_completion_queue(16);
  TypedRegion<std::uint8_t> source = domain.allocate<std::uint8_t>(64);
  TypedRegion<std::uint8_t> target = domain.allocate<std::uint8_t>(grh_bytes + 64);

 private:
  std::optional<QueuePair> a_;
  std::optional<QueuePair> b_;
};

TEST_F(Datagram, GoesWhereItsHandleSaysAndComesBack) {
  std::iota(source.elements().begin(), source.elements().end(), std::uint8_t{1});
  const auto address = domain.create_address_handle({.gid = context.query_gid(1, 0)});
  ASSERT_EQ(b().post_receive(target.slice(), 1), 0);
  ASSERT_EQ(a().post_send_to({address, b().number(), key}, source.slice(), 2), 0);
  const Completion received = await_receive();
  EXPECT_EQ(received.id(), 1U);
  EXPECT_EQ(received.size_bytes(), grh_bytes + 64);
  EXPECT_TRUE(received.has_grh());
  EXPECT_EQ(received.source_queue_pair(), a().number());
  EXPECT_TRUE(std::ranges::equal(target.elements().subspan(grh_bytes), source.elements()));

  const auto back = domain.reply_address(received, front());
  ASSERT_EQ(a().post_receive(target.slice(), 3), 0);
  ASSERT_EQ(b().post_send_to({back, received.source_queue_pair(), key}, source.slice(0, 8), 4), 0);
  EXPECT_EQ(await_receive().id(), 3U);
}

TEST_F(Datagram, OnlyACompletionOfADatagramNamesItsSender) {
  EXPECT_THROW((void)domain.reply_address(Completion{}, front()), Error);
}

TEST_F(Datagram, GroupsReachTheirMembers) {
  if (!test::own_device()) GTEST_SKIP() << "a device need not send to groups of its own";
  const Gid group = Gid::parse("::ffff:239.192.6.1").value();
  const auto address = domain.create_address_handle({.gid = group, .hop_limit = 1});
  try {
    b().join_group(group);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  ASSERT_EQ(b().post_receive(target.slice(), 1), 0);
  constexpr std::uint32_t every_member = 0xFFFFFF;
  ASSERT_EQ(a().post_send_to({address, every_member, key}, source.slice(0, 8), 2), 0);
  EXPECT_EQ(await_receive().source_queue_pair(), a().number());
  b().leave_group(group);
  EXPECT_THROW(b().leave_group(group), Error);
  EXPECT_THROW(b().join_group(context.query_gid(1, 0)), Error);
}

TEST_F(Datagram, UnreliableConnectionsShakeHandsLikeOthers) {
  const auto queue_pair = [this] { return domain.queue_pair(queue, queue, IBV_QPT_UC).build(); };
  auto one = queue_pair();
  auto other = queue_pair();
  const Endpoint of_one = one.endpoint();
  const Endpoint of_other = other.endpoint();
  const QueuePair left = std::move(one).handshake(of_other);
  const QueuePair right = std::move(other).handshake(of_one);
  ASSERT_EQ(right.post_receive(target.slice(), 1), 0);
  ASSERT_EQ(left.post_send(source.slice(0, 10), 2), 0);
  EXPECT_EQ(await_receive().size_bytes(), 10U);
}

}  // namespace
}  // namespace weft::verbs
