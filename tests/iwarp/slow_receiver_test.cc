// Random work towards programs that post their receives late, over random links: each request
// completes once, in order, with the right status, and nothing is delivered twice.
#include <gtest/gtest.h>

#include "random_world.h"

namespace weft::test {
namespace {

using Receives = RandomWork::Receives;

constexpr std::uint64_t handshake_bytes = 24;

// Works in both directions, against the model of RandomWork.
struct SlowPair {
  SlowPair(Random& random, const PairOptions& options)
      : pair(options),
        a_work(random, pair.a, pair.b, random.between(1, 60), Receives::late),
        b_work(random, pair.b, pair.a, random.between(1, 60), Receives::late) {
    random_link(random, pair.a_to_b);
    random_link(random, pair.b_to_a);
    if (options.a.peer.send_immediate) a_work.use_send_immediate();
    if (options.b.peer.send_immediate) b_work.use_send_immediate();
  }

  void close() {
    pair.a.connection().close();
    pair.b.connection().close();
    pair.drive();
  }

  Pair pair;
  RandomWork a_work;
  RandomWork b_work;
};

void expect_success(SlowPair& slow) {
  for (auto* side : {&slow.pair.a, &slow.pair.b}) {
    ASSERT_FALSE(side->connection().ended()) << describe(side->connection().terminate().code);
  }
  EXPECT_TRUE(slow.a_work.all_posted() && slow.b_work.all_posted());
  slow.a_work.check_success();
  slow.b_work.check_success();
}

// However small the hold is, the sender never overruns it.
TEST(SlowReceiver, BetweenWeftsEverythingArrives) {
  for (const auto seed : seeds(runs(100))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    make_patient(random, options);
    SlowPair slow(random, options);
    work(random, slow.pair, slow.a_work, slow.b_work, options.a.acknowledge);
    expect_success(slow);
    if (HasFailure()) return;
  }
}

// Without a hello each side has only its own hold, which is large enough here.
TEST(SlowReceiver, BetweenStrangersEverythingArrivesThatCanBeHeld) {
  for (const auto seed : seeds(runs(50))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    options.a.receiver_not_ready.hold_bytes = 10'000'000;
    options.b.receiver_not_ready.hold_bytes = 10'000'000;
    SlowPair slow(random, options);
    work(random, slow.pair, slow.a_work, slow.b_work, options.a.acknowledge);
    expect_success(slow);
    if (HasFailure()) return;
  }
}

TEST(SlowReceiver, StrangersMayOverrunTheHold) {
  for (const auto seed : seeds(runs(80))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    options.a.receiver_not_ready.hold_bytes = std::size_t{1} << random.between(6, 18);
    options.b.receiver_not_ready.hold_bytes = std::size_t{1} << random.between(6, 18);
    SlowPair slow(random, options);
    work(random, slow.pair, slow.a_work, slow.b_work, options.a.acknowledge);
    slow.close();
    slow.a_work.check_consistent();
    slow.b_work.check_consistent();
    if (HasFailure()) return;
  }
}

// The wait times out somewhere, and the first request without a receive gets the error.
TEST(SlowReceiver, TheWaitEndsForTheRightRequest) {
  for (const auto seed : seeds(runs(100))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    make_patient(random, options);
    options.a.acknowledge = options.b.acknowledge = true;
    for (auto* side : {&options.a, &options.b}) {
      side->receiver_not_ready.timer_ns = std::uint64_t{1} << random.between(4, 22);
      side->receiver_not_ready.retries = static_cast<std::uint8_t>(random.below(8));
    }
    SlowPair slow(random, options);
    work(random, slow.pair, slow.a_work, slow.b_work, true);
    slow.close();
    slow.a_work.check_blame();
    slow.b_work.check_blame();
    if (HasFailure()) return;
  }
}

// A request that the peer must refuse gets the error, whatever waits before it.
TEST(SlowReceiver, AFaultFindsTheRightRequest) {
  for (const auto seed : seeds(runs(100))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    make_patient(random, options);
    options.a.acknowledge = true;
    SlowPair slow(random, options);
    slow.a_work.set_fault(random.below(30));
    work(random, slow.pair, slow.a_work, slow.b_work, false);
    slow.close();
    slow.a_work.check_blame();
    slow.b_work.check_consistent();
    if (HasFailure()) return;
  }
}

TEST(SlowReceiver, CorruptionIsNeverDelivered) {
  for (const auto seed : seeds(runs(80))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    make_patient(random, options);
    options.active.crc = true;
    SlowPair slow(random, options);
    Link& link = random.chance(2) ? slow.pair.a_to_b : slow.pair.b_to_a;
    link.add(corrupt(handshake_bytes + random.below(std::uint64_t{1} << random.between(4, 19)),
                     std::byte(1U << random.below(8))));
    work(random, slow.pair, slow.a_work, slow.b_work, false);
    slow.close();
    slow.a_work.check_consistent();
    slow.b_work.check_consistent();
    if (HasFailure()) return;
  }
}

TEST(SlowReceiver, CutStreamsEndInOrder) {
  for (const auto seed : seeds(runs(80))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    make_patient(random, options);
    SlowPair slow(random, options);
    Link& link = random.chance(2) ? slow.pair.a_to_b : slow.pair.b_to_a;
    link.add(cut(handshake_bytes + random.below(std::uint64_t{1} << random.between(4, 19))));
    work(random, slow.pair, slow.a_work, slow.b_work, false);
    slow.close();
    slow.a_work.check_consistent();
    slow.b_work.check_consistent();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::test
