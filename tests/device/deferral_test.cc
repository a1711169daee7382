// What a polling program lets wait for its next post
// (device/queue_pair/stream_carrier_deferral.cc).
#include <cstdint>
#include <thread>

#include "device/pair_fixture.h"

namespace weft::device {
namespace {

// Two Writes of a byte, posted one by one: the read that asks for proofs leaves with the first one,
// and another one is due when its answer is there.
class ProbesOfWrites : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_TCP("within a host there are no such reads"); }

  static PairOptions without_a_thread() {
    PairOptions options;
    options.settings.progress.mode = ProgressMode::manual;
    return options;
  }
  static void write(Pair& pair, Buffer& from, Buffer& to, std::uint64_t id) {
    ASSERT_EQ(pair.a.write(id, {from.sge(0, 1)}, to.address(), to.rkey()), 0);
  }
  template <typename Condition>
  static void await(Condition condition) {
    const std::uint64_t end_ns = sys::now_ns() + 10'000'000'000;
    while (!condition()) {
      ASSERT_LT(sys::now_ns(), end_ns);
      std::this_thread::yield();
    }
  }
  // Drives both ends until the writer finds a completion.
  static std::uint64_t next(Pair& pair) {
    std::uint64_t id = 0;
    await([&] {
      const auto done = pair.a.look();
      if (done) id = done->wr_id;
      return done || pair.b.look();
    });
    return id;
  }
};

// Only a proof of all three can complete the last two at once: the peer answers nothing in between.
TEST_F(ProbesOfWrites, TheSecondLeavesWithTheNextPost) {
  Pair pair(without_a_thread());
  const auto from = pair.a.buffer(1);
  const auto to = pair.b.buffer(1);
  write(pair, *from, *to, 1);
  write(pair, *from, *to, 2);
  ASSERT_EQ(next(pair), 1U);
  write(pair, *from, *to, 3);
  ASSERT_EQ(next(pair), 2U);
  const auto last = pair.a.look();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->wr_id, 3U);
}

TEST_F(ProbesOfWrites, TheSecondLeavesAtOnceWhereTheQueueIsArmed) {
  Pair pair(without_a_thread());
  const auto from = pair.a.buffer(1);
  const auto to = pair.b.buffer(1);
  write(pair, *from, *to, 1);
  write(pair, *from, *to, 2);
  ASSERT_EQ(pair.a.queue.request_notification(false), 0);
  ASSERT_EQ(next(pair), 1U);
  write(pair, *from, *to, 3);
  ASSERT_EQ(next(pair), 2U);
  EXPECT_FALSE(pair.a.look());
  EXPECT_EQ(next(pair), 3U);
}

// The program has found a completion, and then neither posts nor polls.
TEST_F(ProbesOfWrites, TheSecondLeavesThoughTheProgramMakesNoOtherCall) {
  Pair pair;
  const auto from = pair.a.buffer(1);
  const auto to = pair.b.buffer(1);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    write(pair, *from, *to, 1);
    write(pair, *from, *to, 2);
    ASSERT_EQ(next(pair), 1U);
    await([&] { return pair.a.queue.counters().completions[IBV_WC_SUCCESS] == 2 * round; });
    ASSERT_EQ(next(pair), 2U);
  }
}

}  // namespace
}  // namespace weft::device
