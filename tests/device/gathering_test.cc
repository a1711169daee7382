// Requests that are posted one by one and leave together (device/queue_pair/gathering.h).
#include "device/queue_pair/gathering.h"

#include <atomic>
#include <thread>

#include "device/pair_fixture.h"

namespace weft::device {
namespace {

constexpr int posts = 20;

// The program that these tests play polls, so that its posts may be gathered.
void poll_once(End& end) {
  EXPECT_FALSE(end.look().has_value());
}

TEST(Gathering, TheFirstPostsAfterEachPollLeaveAtOnce) {
  Gathering gathering;
  for (int poll = 0; poll < 3; ++poll) {
    gathering.polled();
    gathering.sent();
    EXPECT_FALSE(gathering.may_wait());
    EXPECT_FALSE(gathering.may_wait());
    EXPECT_FALSE(gathering.waits());
    EXPECT_TRUE(gathering.may_wait());
    EXPECT_TRUE(gathering.waits());
  }
}

TEST(Gathering, AProgramThatNeverPollsWaitsForNothing) {
  Gathering gathering;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(gathering.may_wait());
}

TEST(Gathering, NumberAndBytesAreBounded) {
  Gathering gathering;
  gathering.polled();
  for (std::uint32_t i = 0; i < Gathering::eager_posts; ++i) EXPECT_FALSE(gathering.may_wait());
  for (std::uint32_t i = 0; i < Gathering::most_posts; ++i) EXPECT_TRUE(gathering.may_wait());
  EXPECT_FALSE(gathering.may_wait());
  gathering.sent();
  EXPECT_TRUE(gathering.may_wait());
  gathering.add(Gathering::most_bytes);
  EXPECT_FALSE(gathering.may_wait());
}

TEST(Gathering, PausesWhereTheProgramDidNotPollInTime) {
  Gathering gathering;
  gathering.polled();
  while (!gathering.may_wait()) {
  }
  gathering.missed();
  gathering.sent();
  gathering.polled();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(gathering.may_wait());
}

// The sender makes no call after its posts.
TEST(Gathering, PostsArriveThoughTheProgramDoesNotPollAgain) {
  Pair pair;
  auto source = pair.a.buffer(posts);
  auto sink = pair.b.buffer(posts);
  source->fill(1);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < posts; ++i) {
      ASSERT_EQ(pair.b.post_receive(i, {sink->sge(i, 1)}), 0);
    }
    poll_once(pair.a);
    for (std::size_t i = 0; i < posts; ++i) {
      ASSERT_EQ(pair.a.send(i, {source->sge(i, 1)}, 0), 0);
    }
    for (std::size_t i = 0; i < posts; ++i) EXPECT_EQ(pair.b.await().wr_id, i) << round;
  }
  EXPECT_TRUE(sink->holds(1, 0, posts));
}

// A program that polls finds all completions, in order.
TEST(Gathering, PostsCompleteInOrder) {
  Pair pair;
  auto source = pair.a.buffer(posts);
  auto sink = pair.b.buffer(posts);
  source->fill(1);
  poll_once(pair.a);
  for (std::size_t i = 0; i < posts; ++i) {
    ASSERT_EQ(pair.a.write(i, {source->sge(i, 1)}, sink->address() + i, sink->rkey()), 0);
  }
  for (std::size_t i = 0; i < posts; ++i) {
    const ibv_wc done = pair.a.await();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.wr_id, i);
  }
  EXPECT_TRUE(sink->holds(1, 0, posts));
}

// An adapter would have sent them by then.
TEST(Gathering, WhatWasPostedLeavesBeforeTheQueuePairEnds) {
  Pair pair;
  auto source = pair.a.buffer(posts);
  auto sink = pair.b.buffer(posts);
  source->fill(1);
  for (std::size_t i = 0; i < posts; ++i) {
    ASSERT_EQ(pair.b.post_receive(i, {sink->sge(i, 1)}), 0);
  }
  poll_once(pair.a);
  for (std::size_t i = 0; i < posts; ++i) {
    ASSERT_EQ(pair.a.send(i, {source->sge(i, 1)}), 0);
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.a.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  for (std::size_t i = 0; i < posts; ++i) {
    const ibv_wc done = pair.b.await();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.wr_id, i);
  }
  EXPECT_TRUE(sink->holds(1, 0, posts));
}

// One thread posts and another one polls.
TEST(Gathering, SeveralThreads) {
  Pair pair;
  auto source = pair.a.buffer(8);
  auto sink = pair.b.buffer(8);
  constexpr int requests = 20'000;
  constexpr int most_under_way = 32;
  std::atomic<int> done{0};
  std::thread poller([&] {
    while (done < requests) {
      const ibv_wc one = pair.a.await();
      ASSERT_EQ(one.status, IBV_WC_SUCCESS);
      ++done;
    }
  });
  for (int i = 0; i < requests; ++i) {
    while (i - done >= most_under_way) std::this_thread::yield();
    ASSERT_EQ(pair.a.write(1, {source->sge(0, 8)}, sink->address(), sink->rkey()), 0);
  }
  poller.join();
}

}  // namespace
}  // namespace weft::device
