// Latencies of requests, which are taken only while `weft top` runs.
#include <gtest/gtest.h>

#include <mutex>

#include "device/pair_fixture.h"
#include "device/statistics_registry.h"

namespace weft::device {
namespace {

class Latencies : public testing::Test {
 protected:
  // The completions whose latency was taken, of one end and one kind.
  [[nodiscard]] std::uint64_t taken(End& end, LatencyKind kind) {
    const auto live = pair_.device->statistics_registry().live();
    for (const auto& each : live.queue_pairs) {
      if (each.entry.number != end.queue_pair->verbs()->qp_num) continue;
      std::uint64_t count = 0;
      for (const auto& [bucket, more] : each.live.latencies[static_cast<std::size_t>(kind)]) {
        count += more;
      }
      return count;
    }
    ADD_FAILURE() << "the queue pair is not listed";
    return 0;
  }
  [[nodiscard]] std::uint64_t writes() { return taken(pair_.a, LatencyKind::write); }
  void watch(bool wanted) { pair_.device->statistics_registry().watch_latencies(wanted); }
  int write(unsigned flags = IBV_SEND_SIGNALED) {
    return pair_.a.write(1, {source_->sge(0, 64)}, sink_->address(), sink_->rkey(), flags);
  }
  void finish() { EXPECT_EQ(pair_.a.await().status, IBV_WC_SUCCESS); }

  Pair pair_;
  std::unique_ptr<Buffer> source_ = pair_.a.buffer(4096);
  std::unique_ptr<Buffer> sink_ = pair_.b.buffer(4096);
};

TEST_F(Latencies, AreTakenOnlyWhileTopRuns) {
  ASSERT_EQ(write(), 0);
  finish();
  watch(true);
  EXPECT_EQ(writes(), 0U);
  ASSERT_EQ(write(), 0);
  finish();
  EXPECT_EQ(writes(), 1U);
  watch(false);
  ASSERT_EQ(write(), 0);
  finish();
  EXPECT_EQ(writes(), 0U);
}

// Whatever the program has not polled when the first look comes.
TEST_F(Latencies, RequestsFromBeforeTheFirstLookAreNotMixedUpWithLaterOnes) {
  for (int before = 0; before < 3; ++before) {
    ASSERT_EQ(write(), 0);
    if (before != 1) continue;
    ASSERT_EQ(write(0), 0) << "without a completion of its own";
  }
  watch(true);
  for (int i = 0; i < 3; ++i) finish();
  EXPECT_EQ(writes(), 0U);
  ASSERT_EQ(pair_.a.read(2, {source_->sge(0, 64)}, sink_->address(), sink_->rkey()), 0);
  finish();
  EXPECT_EQ(writes(), 0U);
  EXPECT_EQ(taken(pair_.a, LatencyKind::read), 1U);
}

TEST_F(Latencies, CompletionsThatArePolledAfterTheFirstLookWereDoneBefore) {
  ASSERT_EQ(write(), 0);
  // Done, and in the queue.
  const auto published = [&] { return pair_.a.queue.counters().completions[IBV_WC_SUCCESS]; };
  while (published() == 0) pair_.a.queue_pair->drive_inline();
  watch(true);
  ASSERT_EQ(write(), 0);
  finish();
  finish();
  EXPECT_EQ(writes(), 1U);
}

TEST_F(Latencies, UnsignaledRequestsHaveNone) {
  watch(true);
  ASSERT_EQ(write(0), 0);
  ASSERT_EQ(write(0), 0);
  ASSERT_EQ(write(), 0);
  finish();
  EXPECT_EQ(writes(), 1U);
  ASSERT_EQ(write(), 0);
  finish();
  EXPECT_EQ(writes(), 2U);
}

TEST_F(Latencies, OfSendsBelongToTheSender) {
  watch(true);
  ASSERT_EQ(pair_.b.post_receive(1, {sink_->sge(0, 64)}), 0);
  ASSERT_EQ(pair_.a.send(2, {source_->sge(0, 64)}), 0);
  EXPECT_EQ(pair_.b.await().status, IBV_WC_SUCCESS);
  finish();
  EXPECT_EQ(taken(pair_.a, LatencyKind::send), 1U);
  EXPECT_EQ(taken(pair_.b, LatencyKind::send), 0U);
}

TEST_F(Latencies, OfFailedRequestsAreNotTaken) {
  watch(true);
  ASSERT_EQ(pair_.a.write(1, {source_->sge(0, 64)}, sink_->address(), sink_->rkey() ^ 0x5A00), 0);
  EXPECT_NE(pair_.a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(writes(), 0U);
}

// The peer takes nothing, because its lock is held, until TCP has no room.
TEST_F(Latencies, WaitsForRoomCountWhileTheyLastAndWhenTheirQueuePairIsDestroyed) {
  SKIP_WITHOUT_TCP("nothing else has no room");
  constexpr std::size_t more_than_tcp_holds = 64U << 20U;
  const auto source = pair_.a.buffer(more_than_tcp_holds);
  const auto sink = pair_.b.buffer(more_than_tcp_holds);
  StatisticsRegistry& registry = pair_.device->statistics_registry();
  const auto look = [&] {
    for (const auto& each : registry.live().queue_pairs) {
      if (each.entry.number == pair_.a.queue_pair->verbs()->qp_num) return each.live;
    }
    ADD_FAILURE() << "the queue pair is not listed";
    return LiveQueuePair{};
  };
  watch(true);
  std::uint64_t later_ns = 0;
  {
    const std::lock_guard held(pair_.b.queue_pair->mutex());
    ASSERT_EQ(
        pair_.a.write(1, {source->sge(0, more_than_tcp_holds)}, sink->address(), sink->rkey()), 0);
    while (!look().waits.room && !HasFailure()) pair_.a.queue_pair->drive_inline();
    const std::uint64_t first_ns = look().room_wait_ns;
    later_ns = look().room_wait_ns;
    EXPECT_GT(later_ns, first_ns);
    EXPECT_EQ(registry.live().skipped, 1U) << "the one whose lock is held";
  }
  EXPECT_EQ(registry.live().skipped, 0U);
  EXPECT_EQ(registry.live().destroyed_room_wait_ns, 0U);
  pair_.a.queue_pair->destroy();
  pair_.a.queue_pair.reset();
  EXPECT_GE(registry.live().destroyed_room_wait_ns, later_ns);
}

TEST_F(Latencies, SumsOfDestroyedQueuePairsStay) {
  const auto before = pair_.device->statistics_registry().live();
  { End brief(*pair_.device, {}); }
  const auto after = pair_.device->statistics_registry().live();
  EXPECT_EQ(after.destroyed, before.destroyed + 1);
  EXPECT_EQ(after.queue_pairs.size(), before.queue_pairs.size());
}

}  // namespace
}  // namespace weft::device
