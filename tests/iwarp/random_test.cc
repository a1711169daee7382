// Random work in both directions over random links, against a model.
#include <gtest/gtest.h>

#include "random_world.h"

namespace weft::test {
namespace {

TEST(Random, WorkInBothDirections) {
  for (const auto seed : seeds(runs(50))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    const auto options = random_pair(random);
    Pair pair(options);
    random_link(random, pair.a_to_b);
    random_link(random, pair.b_to_a);
    RandomWork a_work(random, pair.a, pair.b, random.between(1, 60));
    RandomWork b_work(random, pair.b, pair.a, random.between(1, 60));
    work(random, pair, a_work, b_work, options.a.acknowledge);
    ASSERT_FALSE(pair.a.connection().ended()) << describe(pair.a.connection().terminate().code);
    ASSERT_FALSE(pair.b.connection().ended()) << describe(pair.b.connection().terminate().code);
    EXPECT_TRUE(a_work.all_posted() && b_work.all_posted());
    a_work.check_success();
    b_work.check_success();
    if (HasFailure()) return;
  }
}

// One byte of the stream is wrong: nothing wrong is delivered, in whatever field it was.
TEST(Random, CorruptionIsNeverDelivered) {
  for (const auto seed : seeds(runs(80))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    auto options = random_pair(random);
    options.active.crc = true;
    Pair pair(options);
    const std::uint64_t handshake_bytes = 24;
    const std::uint64_t offset =
        handshake_bytes + random.below(std::uint64_t{1} << random.between(4, 19));
    Link& link = random.chance(2) ? pair.a_to_b : pair.b_to_a;
    link.add(corrupt(offset, std::byte(1U << random.below(8))));
    random_link(random, pair.a_to_b);
    random_link(random, pair.b_to_a);
    RandomWork a_work(random, pair.a, pair.b, random.between(1, 30));
    RandomWork b_work(random, pair.b, pair.a, random.between(1, 30));
    work(random, pair, a_work, b_work, false);
    // Where a length became larger, the receiver waits for bytes that never arrive.
    pair.a.connection().close();
    pair.b.connection().close();
    pair.drive();
    a_work.check_consistent();
    b_work.check_consistent();
    EXPECT_EQ(pair.a.host.end_calls, 1);
    EXPECT_EQ(pair.b.host.end_calls, 1);
    if (HasFailure()) return;
  }
}

// The stream breaks somewhere.
TEST(Random, CutStreamsEndInOrder) {
  for (const auto seed : seeds(runs(80))) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    Pair pair(random_pair(random));
    Link& link = random.chance(2) ? pair.a_to_b : pair.b_to_a;
    const std::uint64_t handshake_bytes = 24;
    link.add(cut(handshake_bytes + random.below(std::uint64_t{1} << random.between(4, 19))));
    random_link(random, pair.a_to_b);
    random_link(random, pair.b_to_a);
    RandomWork a_work(random, pair.a, pair.b, random.between(1, 30));
    RandomWork b_work(random, pair.b, pair.a, random.between(1, 30));
    work(random, pair, a_work, b_work, false);
    pair.a.connection().close();
    pair.b.connection().close();
    pair.drive();
    a_work.check_consistent();
    b_work.check_consistent();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::test
