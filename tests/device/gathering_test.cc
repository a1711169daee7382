// Requests that are posted one by one and leave together (device/queue_pair/gathering.h).
#include "device/queue_pair/gathering.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "device/pair_fixture.h"

namespace weft::device {
namespace {

constexpr int posts = 20;

// The program that these tests play polls, so that its posts may be gathered.
void poll_once(End& end) {
  EXPECT_FALSE(end.look().has_value());
}

// One Write and its completion. Afterwards a connection within the host has left TCP.
void write_one(Pair& pair, Buffer& source, Buffer& sink) {
  ASSERT_EQ(pair.a.write(1, {source.sge(0, 1)}, sink.address(), sink.rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

// A clock that stands still unless a test moves it.
std::uint64_t now_ns = 1'000'000;
std::uint64_t fake_clock() {
  return now_ns;
}

constexpr std::uint64_t call_ns = 2'000;

// One call that posts; whether its request waits.
bool post(Gathering& gathering) {
  if (gathering.may_wait()) return true;
  gathering.sent();
  now_ns += call_ns;
  gathering.left();
  return false;
}

TEST(GatheringRule, TheFirstPostsAfterEachPollLeaveAtOnce) {
  Gathering gathering(&fake_clock);
  for (int poll = 0; poll < 3; ++poll) {
    gathering.polled();
    gathering.sent();
    EXPECT_FALSE(gathering.possible());
    EXPECT_FALSE(post(gathering));
    EXPECT_FALSE(post(gathering));
    EXPECT_FALSE(gathering.waits());
    EXPECT_TRUE(gathering.possible());
    EXPECT_TRUE(post(gathering));
    EXPECT_TRUE(gathering.waits());
  }
}

TEST(GatheringRule, AProgramThatNeverPollsWaitsForNothing) {
  Gathering gathering(&fake_clock);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(post(gathering));
}

TEST(GatheringRule, NumberAndBytesAreBounded) {
  Gathering gathering(&fake_clock);
  gathering.polled();
  for (std::uint32_t i = 0; i < Gathering::eager_posts; ++i) EXPECT_FALSE(post(gathering));
  for (std::uint32_t i = 0; i < Gathering::most_posts; ++i) EXPECT_TRUE(post(gathering));
  EXPECT_FALSE(post(gathering));
  EXPECT_TRUE(post(gathering));
  gathering.add(Gathering::most_bytes);
  EXPECT_FALSE(post(gathering));
}

// It may have waited in its memory for an answer, and will do so again.
TEST(GatheringRule, APostSomeTimeAfterTheOneBeforeLeavesAtOnce) {
  Gathering gathering(&fake_clock);
  gathering.polled();
  for (std::uint32_t i = 0; i < Gathering::eager_posts; ++i) EXPECT_FALSE(post(gathering));
  for (int i = 0; i < 10; ++i) {
    now_ns += call_ns + 1;
    EXPECT_FALSE(post(gathering));
  }
  now_ns += call_ns;
  EXPECT_TRUE(post(gathering));
}

// A poll of a queue that is not empty is seen by the places that it has given back.
TEST(GatheringRule, PolledCompletionsCountAsAPoll) {
  Gathering gathering(&fake_clock);
  gathering.polled();
  for (std::uint32_t taken = 1; taken <= Gathering::eager_posts; ++taken) {
    gathering.look(taken);
    EXPECT_FALSE(post(gathering));
  }
  EXPECT_TRUE(gathering.possible());
  gathering.look(Gathering::eager_posts);
  EXPECT_FALSE(gathering.possible());
}

TEST(GatheringRule, PausesWhereTheProgramDidNotPollInTime) {
  Gathering gathering(&fake_clock);
  gathering.polled();
  while (!post(gathering)) {
  }
  gathering.missed();
  gathering.sent();
  gathering.polled();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(post(gathering));
  now_ns += Gathering::longest_pause_ns;
  EXPECT_FALSE(post(gathering));
  EXPECT_TRUE(post(gathering));
}

// One call that posts bulk; whether its end waits.
bool post_bulk(Gathering& gathering, std::uint64_t bytes = Gathering::most_bytes) {
  gathering.add(bytes);
  EXPECT_FALSE(gathering.may_wait());
  const bool waits = gathering.end_may_wait();
  gathering.sent();
  now_ns += call_ns;
  gathering.left();
  return waits;
}

TEST(GatheringRule, OfBulkOnlyTheEndWaits) {
  Gathering gathering(&fake_clock);
  EXPECT_FALSE(post_bulk(gathering));  // the program has not polled yet
  gathering.polled();
  for (std::uint32_t i = 0; i < Gathering::eager_posts; ++i) EXPECT_FALSE(post_bulk(gathering));
  EXPECT_TRUE(post_bulk(gathering));
  EXPECT_FALSE(gathering.waits());
  EXPECT_EQ(gathering.keep_end(), now_ns + Gathering::end_patience_ns);
  EXPECT_TRUE(gathering.waits());
  EXPECT_EQ(gathering.keep_end(), 0U);  // one look serves all
  EXPECT_TRUE(post_bulk(gathering, Gathering::most_with_end_bytes));
  EXPECT_FALSE(post_bulk(gathering, Gathering::most_with_end_bytes + 1));
  now_ns += call_ns + 1;
  EXPECT_FALSE(post_bulk(gathering));
}

TEST(GatheringRule, TheEndOfBulkPausesOnlyWhereThePostsHaveStopped) {
  Gathering gathering(&fake_clock);
  gathering.polled();
  while (!post_bulk(gathering)) {
  }
  const std::uint64_t look_ns = gathering.keep_end();
  gathering.look_at_end();  // too early
  EXPECT_EQ(gathering.keep_end(), 0U);
  while (now_ns < look_ns) EXPECT_TRUE(post_bulk(gathering));
  EXPECT_EQ(gathering.keep_end(), 0U);
  gathering.look_at_end();
  EXPECT_TRUE(post_bulk(gathering));
  now_ns = gathering.keep_end();
  gathering.look_at_end();
  EXPECT_FALSE(post_bulk(gathering));
  gathering.polled();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(post_bulk(gathering));
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
  write_one(pair, *source, *sink);
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

// Posts `posts` Writes of a byte, none of them signaled.
void post_writes(Pair& pair, Buffer& source, Buffer& sink) {
  poll_once(pair.a);
  for (std::size_t i = 0; i < posts; ++i) {
    ASSERT_EQ(pair.a.write(i, {source.sge(i, 1)}, sink.address() + i, sink.rkey(), 0), 0);
  }
}

// The sender makes no call after its posts, and the receiver watches its memory.
TEST(Gathering, WritesArriveThoughTheProgramDoesNotPollAgain) {
  Pair pair;
  auto source = pair.a.buffer(posts);
  auto sink = pair.b.buffer(posts);
  for (std::uint8_t round = 1; round <= 3; ++round) {
    source->fill(round);
    post_writes(pair, *source, *sink);
    while (!sink->holds(round, 0, posts)) std::this_thread::yield();
  }
}

// Of several large Writes that are posted at once, only whole segments of TCP leave at once.
TEST(Gathering, LargeWritesArriveThoughTheProgramDoesNotPollAgain) {
  constexpr std::size_t bytes = 65'536;
  constexpr std::size_t writes = 6;
  Pair pair;
  auto source = pair.a.buffer(writes * bytes);
  auto sink = pair.b.buffer(writes * bytes);
  for (std::uint8_t round = 1; round <= 3; ++round) {
    source->fill(round);
    poll_once(pair.a);
    for (std::size_t i = 0; i < writes; ++i) {
      ASSERT_EQ(pair.a.write(i, {source->sge(i * bytes, bytes)}, sink->address() + i * bytes,
                             sink->rkey(), 0),
                0);
    }
    while (!sink->holds(round, 0, writes * bytes)) std::this_thread::yield();
  }
}

TEST(Gathering, WritesArriveBeforeTheQueuePairEnds) {
  Pair pair;
  auto source = pair.a.buffer(posts);
  auto sink = pair.b.buffer(posts);
  source->fill(1);
  write_one(pair, *source, *sink);
  post_writes(pair, *source, *sink);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.a.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  while (!sink->holds(1, 0, posts)) std::this_thread::yield();
}

// A program that has armed its queue may sleep without another call, so its last requests must not
// wait for one.
TEST(Gathering, NothingWaitsWhereTheProgramHasArmedItsQueue) {
  if (!carrier_is_local()) GTEST_SKIP() << "over TCP the time of arrival does not show it";
  PairOptions options;
  options.ends.channel = true;
  Pair pair(options);
  auto source = pair.a.buffer(posts);
  auto sink = pair.b.buffer(posts);
  source->fill(1);
  write_one(pair, *source, *sink);
  ASSERT_EQ(pair.a.queue.request_notification(false), 0);
  post_writes(pair, *source, *sink);
  // In a staged connection the peer's thread places them.
  const bool staged = !pair.a.queue_pair->carrier_note().reason.empty();
  while (staged && !sink->holds(1, 0, posts)) std::this_thread::yield();
  EXPECT_TRUE(sink->holds(1, 0, posts));
}

// The peer's memory is written in the order of the posts, also where several of them are adjacent
// or write the same bytes.
TEST(Gathering, TheLastOfSeveralWritesToTheSameBytesCounts) {
  Pair pair;
  auto source = pair.a.buffer(64);
  auto sink = pair.b.buffer(64);
  source->fill(1);
  poll_once(pair.a);
  const std::uint64_t at = sink->address();
  for (std::size_t i = 0; i < posts; ++i) {
    // 0 to 7, 8 to 15, and again.
    ASSERT_EQ(pair.a.write(i, {source->sge(i, 8)}, at + i % 2 * 8, sink->rkey()), 0);
  }
  for (std::size_t i = 0; i < posts; ++i) EXPECT_EQ(pair.a.await().wr_id, i);
  const auto* first = reinterpret_cast<const std::byte*>(source->address());
  const auto* there = reinterpret_cast<const std::byte*>(at);
  EXPECT_EQ(std::memcmp(there, first + posts - 2, 8), 0);
  EXPECT_EQ(std::memcmp(there + 8, first + posts - 1, 8), 0);
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
