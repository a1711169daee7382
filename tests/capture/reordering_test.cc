// Captures of both transports, damaged under a seed: packets lost before the capture, after it and
// by it, captured twice, and reordered within windows of up to 512 packets. The generator knows
// which packets the capture lacks, so the tests know which exchanges must be byte-exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "capture/damage.h"
#include "capture/made_roce.h"
#include "capture/traffic_log.h"
#include "support/random.h"

namespace weft::capture::test {
namespace {

using weft::test::Random;

Conversation roce_conversation(std::size_t rounds, bool managed,
                               RoceOptions::Carrier carrier = RoceOptions::Carrier::ipv4) {
  Conversation made;
  RoceTalk talk(made.capture, {.carrier = carrier});
  if (managed) talk.connect();
  made.handshake_packets = made.capture.size();
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::uint64_t place = round * 0x10000;
    for (const std::size_t size : {1U, 257U, 1'100U}) {
      talk.send(Side::a, size);
      talk.write(Side::b, 7, place + size, size);
      talk.read(Side::a, 9, place + 0x2000 + size, size);
      talk.send(Side::b, size + 2);
      talk.fetch_add(Side::b, 9, 0x8, 1, round);
    }
  }
  return made;
}

Conversation iwarp_conversation(std::size_t rounds, const MpaOptions& mpa) {
  Conversation made;
  IwarpTalk talk(made.capture, {.mss_bytes = 300}, mpa);
  talk.connect();
  made.handshake_packets = made.capture.size();
  Operator a(talk, Side::a, false, 250);
  Operator b(talk, Side::b, false, 250);
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::uint64_t place = round * 0x10000;
    for (const std::size_t size : {1U, 257U, 1'100U}) {
      a.send(size);
      b.write(7, place + size, size);
      a.read(9, place + 0x2000 + size, size);
      b.send(size + 2);
      b.fetch_add(9, 0x8, 1, round);
    }
  }
  return made;
}

struct Way {
  const char* name;
  Conversation (*make)(std::size_t rounds);
};

const Way ways[] = {
    {"Iwarp", [](std::size_t rounds) { return iwarp_conversation(rounds, {}); }},
    {"IwarpMarkersAnywhere",
     [](std::size_t rounds) {
       return iwarp_conversation(rounds, {.markers_a = true, .markers_b = true, .aligned = false});
     }},
    {"Roce", [](std::size_t rounds) { return roce_conversation(rounds, true); }},
    {"Infiniband",
     [](std::size_t rounds) {
       return roce_conversation(rounds, true, RoceOptions::Carrier::native);
     }},
    {"InfinibandGlobal",
     [](std::size_t rounds) {
       return roce_conversation(rounds, true, RoceOptions::Carrier::native_global);
     }},
    {"RoceWithoutHandshake", [](std::size_t rounds) { return roce_conversation(rounds, false); }},
};

struct Outcome {
  TrafficLog traffic;
  OperationLog operations;
  std::size_t connections = 0;

  explicit Outcome(const MadeCapture& capture) {
    Analysis analysis;
    analysis.add_sink(traffic);
    analysis.add_operations(operations);
    feed(analysis, capture);
    connections = analysis.connections().size();
  }
  [[nodiscard]] std::size_t whole() const {
    std::size_t count = 0;
    for (const auto* messages : {&traffic.sends, &traffic.writes, &traffic.reads}) {
      count += static_cast<std::size_t>(
          std::ranges::count_if(*messages, [](const auto& one) { return one.second.whole(); }));
    }
    return count + traffic.atomic_answers.size();
  }
  [[nodiscard]] std::size_t named() const {
    const auto complete = [](const Operation& one) {
      return one.outcome == Operation::Outcome::complete;
    };
    return traffic.lost_packets + traffic.lost_bytes + traffic.unknown_answers +
           operations.operations.size() -
           static_cast<std::size_t>(std::ranges::count_if(operations.operations, complete));
  }
};

constexpr std::size_t messages_in_round = 3 * 5;

void expect_exact(const Damaged& damaged, std::size_t rounds) {
  const Outcome seen(damaged.capture);
  expect_known_bytes(seen.traffic);
  EXPECT_EQ(seen.connections, 1U);
  if (damaged.lacking == 0) {
    EXPECT_EQ(seen.whole(), messages_in_round * rounds);
    EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.lost_bytes, 0U);
    EXPECT_EQ(seen.traffic.unknown_answers, 0U);
    EXPECT_TRUE(seen.traffic.violations.empty());
    return;
  }
  EXPECT_LE(seen.whole(), messages_in_round * rounds);
  const bool all = seen.whole() == messages_in_round * rounds;
  EXPECT_TRUE(all || seen.named() > 0U);
}

class Reordering : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(, Reordering, testing::ValuesIn(ways),
                         [](const auto& test_case) { return test_case.param.name; });

// The sweep takes every combination of loss, repetition and reordering.
TEST_P(Reordering, CompleteMeansByteExact) {
  const bool long_run = std::getenv("WEFT_TEST_LONG") != nullptr;
  const std::size_t rounds = long_run ? 60 : 25;
  const Conversation made = GetParam().make(rounds);
  const Damage damages[] = {
      {},
      {.captured_twice = 20},
      {.before_tap = 200},
      {.after_tap = 200},
      {.by_tap = 200},
      {.before_tap = 300, .after_tap = 300, .by_tap = 300},
  };
  for (const std::size_t window : {1, 8, 64, 200, 512}) {
    for (Damage damage : damages) {
      damage.window = window;
      for (const std::uint64_t seed : weft::test::seeds(long_run ? 40 : 2)) {
        SCOPED_TRACE(testing::Message()
                     << weft::test::seed_trace(seed) << ", window " << window << ", one of "
                     << damage.before_tap << " lost before, " << damage.after_tap << " after, "
                     << damage.by_tap << " by the capture, " << damage.captured_twice << " twice");
        Random random(seed);
        expect_exact(damaged(made, damage, random), rounds);
      }
    }
  }
}

// A conversation of operations in random order and of random length.
MadeCapture random_talk(const RoceOptions& options, std::size_t operations, Random& random) {
  MadeCapture capture;
  RoceTalk talk(capture, options);
  for (std::size_t i = 0; i < operations; ++i) {
    const std::size_t bytes = 1 + random.below(1'200);
    const std::uint64_t address = i * 0x1000;
    switch (random.below(4)) {
      case 0:
        talk.send(Side::a, bytes);
        break;
      case 1:
        talk.send(Side::b, bytes);
        break;
      case 2:
        talk.write(Side::b, options.qp_a, address, bytes);
        break;
      default:
        talk.read(Side::a, options.qp_b, address, bytes);
    }
  }
  return capture;
}

// Each capture stays in order; which of them is next is random.
MadeCapture mixed(const std::vector<MadeCapture>& captures, Random& random) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < captures.size(); ++i)
    turns.insert(turns.end(), captures[i].size(), i);
  for (std::size_t i = turns.size(); i > 1; --i) std::swap(turns[i - 1], turns[random.below(i)]);
  std::vector<std::size_t> next(captures.size());
  MadeCapture out;
  for (const std::size_t turn : turns) out.push_back(captures[turn][next[turn]++]);
  return out;
}

// Queue pairs of the same hosts, without the connection manager. Programs that begin each of them
// with the same PSN leave the responses, and the order of the capture, to join both directions.
TEST(ReorderingJoins, QueuePairsWithEqualPsns) {
  constexpr std::size_t operations = 40;
  const bool long_run = std::getenv("WEFT_TEST_LONG") != nullptr;
  for (const std::size_t window : {1, 2, 8, 64}) {
    for (const std::size_t pairs : {2, 4, 8}) {
      for (const std::uint64_t seed : weft::test::seeds(long_run ? 100 : 12)) {
        SCOPED_TRACE(testing::Message() << weft::test::seed_trace(seed) << ", window " << window
                                        << ", " << pairs << " pairs");
        Random random(seed);
        std::vector<MadeCapture> talks;
        for (std::uint32_t i = 0; i < pairs; ++i) {
          talks.push_back(random_talk({.qp_a = 0x20 + i, .qp_b = 0x40 + i}, operations, random));
        }
        const Outcome seen(shuffled(mixed(talks, random), 0, window, random));
        EXPECT_EQ(seen.connections, pairs);
        EXPECT_EQ(seen.whole(), pairs * operations);
        EXPECT_EQ(seen.traffic.lost_packets + seen.traffic.unknown_answers, 0U);
        EXPECT_TRUE(seen.traffic.violations.empty());
        expect_known_bytes(seen.traffic);
      }
    }
  }
}

}  // namespace
}  // namespace weft::capture::test
