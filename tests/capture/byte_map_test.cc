#include "weft/capture/byte_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"

namespace weft::capture {
namespace {

using test::pattern;

struct ByteMapTest : testing::Test {
  Budget budget{1 << 20};
  ByteMap map{budget};
  std::vector<std::byte> bytes = pattern(1000);
  [[nodiscard]] Bytes piece(std::size_t begin, std::size_t end) const {
    return Bytes(bytes).subspan(begin, end - begin);
  }
};

TEST_F(ByteMapTest, IsWholeWhateverTheOrder) {
  for (const std::uint64_t seed : test::seeds(20)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    ByteMap shuffled(budget);
    std::vector<std::size_t> cuts{0, bytes.size()};
    for (int i = 0; i < 10; ++i) cuts.push_back(random.below(bytes.size()));
    std::ranges::sort(cuts);
    std::vector<std::size_t> order(cuts.size() - 1);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    std::uint64_t added = 0;
    for (const std::size_t i : order) {
      added += shuffled.place(cuts[i], piece(cuts[i], cuts[i + 1])).added;
    }
    EXPECT_EQ(added, bytes.size());
    EXPECT_TRUE(shuffled.complete(bytes.size()));
    EXPECT_EQ(shuffled.take(0, bytes.size()), Assembled(bytes));
  }
}

TEST_F(ByteMapTest, SaysWhichRangesAreMissing) {
  map.place(100, piece(100, 200));
  map.place(300, piece(300, 400));
  EXPECT_EQ(map.present(1000), 200U);
  const Assembled taken = map.take(0, 500);
  EXPECT_EQ(taken.size(), 500U);
  EXPECT_EQ(taken.flaws(),
            (std::vector<FlawedRange>{
                {0, 100, Flaw::missing}, {200, 300, Flaw::missing}, {400, 500, Flaw::missing}}));
  EXPECT_TRUE(taken.whole(100, 200));
  EXPECT_FALSE(taken.whole(199, 201));
  EXPECT_EQ(map.take(100, 200), Assembled(piece(100, 200)));
}

TEST_F(ByteMapTest, TellsRepeatsFromContradictions) {
  map.place(0, piece(0, 500));
  const auto repeated = map.place(400, piece(400, 600));
  EXPECT_EQ(repeated.repeated, 100U);
  EXPECT_EQ(repeated.added, 100U);
  EXPECT_EQ(repeated.conflicting, 0U);

  std::vector<std::byte> other(bytes.begin() + 10, bytes.begin() + 20);
  other[3] ^= std::byte{1};
  other[5] ^= std::byte{1};
  const auto conflict = map.place(10, other);
  EXPECT_EQ(conflict.conflicting, 2U);
  const Assembled taken = map.take(0, 600);
  EXPECT_EQ(taken.flaws(), (std::vector<FlawedRange>{{13, 16, Flaw::conflict}}));
  EXPECT_EQ(taken.bytes()[13], other[3]) << "the later bytes are there";
}

// One call that overwrites two extents counts the conflicts of each extent once.
TEST_F(ByteMapTest, CountsRepeatsOfEachExtent) {
  map.place(0, piece(0, 100));
  map.place(200, piece(200, 201));
  std::vector<std::byte> other(bytes.begin(), bytes.begin() + 201);
  for (const std::size_t at : {10U, 20U, 200U}) other[at] ^= std::byte{1};
  const auto placed = map.place(0, other);
  EXPECT_EQ(placed.conflicting, 3U);
  EXPECT_EQ(placed.repeated, 98U);
  EXPECT_EQ(placed.added, 100U);
}

TEST_F(ByteMapTest, RemembersWhatTheCaptureCutOff) {
  map.place(0, piece(0, 100));
  map.place_cut(100, 50);
  EXPECT_EQ(map.take(0, 200).flaws(),
            (std::vector<FlawedRange>{{100, 150, Flaw::cut}, {150, 200, Flaw::missing}}));
  map.place(100, piece(100, 200));
  EXPECT_TRUE(map.take(0, 200).whole()) << "a retransmission heals it";
}

TEST_F(ByteMapTest, DropsWhatTheBudgetDoesNotHold) {
  Budget small(100);
  {
    ByteMap first(small);
    EXPECT_EQ(first.place(0, piece(0, 60)).added, 60U);
    ByteMap second(small);
    EXPECT_EQ(second.place(0, piece(0, 60)).dropped, 60U);
    EXPECT_EQ(second.take(0, 60).flaws(), (std::vector<FlawedRange>{{0, 60, Flaw::dropped}}));
    EXPECT_EQ(small.used_bytes(), 60U);
  }
  EXPECT_EQ(small.used_bytes(), 0U);
}

TEST_F(ByteMapTest, KeepsFewNotesOfManyContradictions) {
  Budget large(1 << 20);
  ByteMap noisy(large);
  const auto there = pattern(100'000);
  noisy.place(0, there);
  for (std::size_t at = 0; at < there.size(); at += 10) {
    const std::byte other = there[at] ^ std::byte{1};
    noisy.place(at, Bytes(&other, 1));
  }
  const Assembled taken = noisy.take(0, there.size());
  EXPECT_LE(taken.flaws().size(), 1024U);
  EXPECT_FALSE(taken.whole(99'990, 99'991)) << "the last one is covered as well";
}

TEST(Assembled, CarriesFlawsThroughPartsAndJoins) {
  Assembled first(pattern(10));
  first.append_flawed(10, Flaw::missing);
  Assembled joined(pattern(5));
  joined.append(first);
  EXPECT_EQ(joined.flaws(), (std::vector<FlawedRange>{{15, 25, Flaw::missing}}));
  EXPECT_EQ(joined.part(5, 15), Assembled(pattern(10)));
  EXPECT_EQ(joined.part(20, 100).flaws(), (std::vector<FlawedRange>{{0, 5, Flaw::missing}}));
  EXPECT_TRUE(joined.part(30, 40).whole());
  EXPECT_EQ(joined.part(30, 40).size(), 0U);
}

// What was too long to be held has a flaw and no bytes.
TEST(Assembled, KeepsFlawsBehindItsBytes) {
  Assembled long_one;
  long_one.mark({0, 1'000, Flaw::dropped});
  EXPECT_EQ(long_one.part(0, 0).flaws(), long_one.flaws());
  Assembled all;
  all.append(long_one.part(0, long_one.size()));
  EXPECT_FALSE(all.whole());
}

TEST(Assembled, IsDescribed) {
  Assembled bytes(pattern(4));
  EXPECT_EQ(describe_flaws(bytes), "whole");
  bytes.append_flawed(2, Flaw::missing);
  bytes.append_flawed(2, Flaw::cut);
  EXPECT_EQ(describe_flaws(bytes), "bytes 4 to 5 missing, 6 to 7 cut off by the capture");
}

TEST(Assembled, KnowsThatItsEndIsNotTheEnd) {
  Assembled bytes(pattern(8));
  bytes.set_open_end();
  EXPECT_FALSE(bytes.whole());
  EXPECT_TRUE(bytes.part(0, 4).whole());
  EXPECT_FALSE(bytes.part(4, 8).whole());
  Assembled joined(pattern(4));
  joined.append(bytes);
  EXPECT_EQ(describe_flaws(joined), "everything behind byte 12 missing");
}

}  // namespace
}  // namespace weft::capture
