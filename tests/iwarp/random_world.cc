#include "random_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace weft::test {
namespace {

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

// Receives that were left for later are posted now and then, too.
bool post_some(Random& random, RandomWork& work) {
  const std::size_t before = work.posted();
  for (auto posts = random.below(6); posts > 0 && !work.all_posted(); --posts) work.post_one();
  const bool received = work.post_receives(random.below(5)) > 0;
  return received || work.posted() != before;
}

}  // namespace

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
  // The passive side of Pair offers 17; an initiator with a smaller IRD would have to refuse.
  options.active.ird = 17;
  return options;
}

void make_patient(Random& random, PairOptions& options) {
  const auto hold_bytes = std::size_t{1} << random.between(6, 20);
  const PairOptions patient = patient_pair(hold_bytes);
  for (auto [side, from] : {std::pair{&options.a, &patient.a}, {&options.b, &patient.b}}) {
    side->control_stag = from->control_stag;
    side->peer = from->peer;
    side->receiver_not_ready = from->receiver_not_ready;
  }
}

void work(Random& random, Pair& pair, RandomWork& a_work, RandomWork& b_work, bool check_placed) {
  while (!pair.a.connected() || !pair.b.connected()) ASSERT_TRUE(pair.step());
  int idle_rounds = 0;
  while ((!a_work.all_posted() || !b_work.all_posted()) && idle_rounds < 100) {
    bool moved = post_some(random, a_work);
    moved |= post_some(random, b_work);
    for (auto steps = random.between(1, 30); steps > 0 && pair.step(); --steps) {
      moved = true;
      if (check_placed && pair.a.connection().idle()) a_work.check_placed();
    }
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (testing::Test::HasFailure()) return;
  }
  while (a_work.post_receives(random.below(3)) + b_work.post_receives(random.below(3)) > 0 ||
         pair.step()) {
    if (check_placed && pair.a.connection().idle()) a_work.check_placed();
  }
  while (a_work.post_receives(1) + b_work.post_receives(1) > 0) pair.drive();
  pair.drive();
}

}  // namespace weft::test
