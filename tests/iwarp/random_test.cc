// Random work in both directions over random links, against a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "random_work.h"

namespace weft::test {
namespace {

using iwarp::EndReason;
using iwarp::Status;

// More of them with WEFT_TEST_LONG.
std::uint64_t runs(std::uint64_t count) {
  return std::getenv("WEFT_TEST_LONG") ? count * 20 : count;
}

iwarp::Connection::Options random_options(Random& random, bool initiator) {
  auto options = roomy(initiator);
  options.strict_crc = random.chance(4);
  options.acknowledge = !random.chance(3);
  options.ord = static_cast<std::uint16_t>(random.between(1, 16));
  constexpr std::size_t mulpdus[] = {128, 512, 1442, 8954, 64'768};
  options.mulpdu_bytes = mulpdus[random.below(5)];
  options.limits.send_requests = static_cast<std::uint32_t>(random.between(1, 40));
  return options;
}

iwarp::HandshakeOptions random_handshake(Random& random) {
  iwarp::HandshakeOptions options;
  options.crc = random.chance(2);
  options.rtr = {.send = random.chance(2), .write = true, .read = random.chance(2)};
  if (random.chance(3)) options.rtr = {.send = true, .write = false, .read = false};
  options.ird = static_cast<std::uint16_t>(random.between(1, 17));
  options.ord = static_cast<std::uint16_t>(random.between(1, 17));
  options.max_ird = 17;
  return options;
}

void random_link(Random& random, Link& link) {
  if (random.chance(2)) link.add(delay(random.between(1, 1'000'000)));
  if (random.chance(3)) link.add(jitter(Random(random.next()), random.between(1, 100'000)));
  if (random.chance(3)) link.add(coalesce(random.between(1, 100'000)));
  if (random.chance(3)) link.add(stall(random.below(500'000), 10'000'000));
  if (random.chance(2)) {
    link.add(chunk_random(Random(random.next()), std::size_t{1} << random.between(3, 17)));
  }
  if (random.chance(2)) link.set_window(random.between(1, 100'000));
}

PairOptions random_pair(Random& random) {
  PairOptions options;
  options.a = random_options(random, true);
  options.b = random_options(random, false);
  options.handshake = true;
  options.active = random_handshake(random);
  options.passive = random_handshake(random);
  options.passive.rtr = {.send = true, .write = random.chance(2), .read = true};
  options.active.rtr.send = true;
  // The passive side of Pair offers 17; an initiator that holds less would have to refuse.
  options.active.ird = 17;
  return options;
}

// Posts a little, lets the world move a little, until all is posted and at rest; or until nothing
// moves any more, as when a corrupted length waits for bytes that never come.
void work(Random& random, Pair& pair, RandomWork& a_work, RandomWork& b_work, bool check_placed) {
  while (!pair.a.connected() || !pair.b.connected()) ASSERT_TRUE(pair.step());
  int idle_rounds = 0;
  while ((!a_work.all_posted() || !b_work.all_posted()) && idle_rounds < 100) {
    const std::size_t posted_before = a_work.posted() + b_work.posted();
    for (RandomWork* one : {&a_work, &b_work}) {
      for (auto posts = random.below(6); posts > 0 && !one->all_posted(); --posts) {
        one->post_one();
      }
    }
    bool moved = a_work.posted() + b_work.posted() != posted_before;
    for (auto steps = random.between(1, 30); steps > 0 && pair.step(); --steps) {
      moved = true;
      if (check_placed && pair.a.connection().idle()) a_work.check_placed();
    }
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (testing::Test::HasFailure()) return;
  }
  pair.drive();
}

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

// One byte of the stream is wrong: nothing of it is delivered, in whatever field it was.
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
    // A length that became larger waits for bytes that never come.
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
