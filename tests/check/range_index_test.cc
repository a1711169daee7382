#include "check/range_index.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace weft::check {
namespace {

std::set<std::uint64_t> found(const RangeIndex& index, const MemoryRange& range) {
  std::set<std::uint64_t> numbers;
  index.find_overlapping(range, [&](std::uint64_t number, const MemoryRange& /*range*/) {
    numbers.insert(number);
    return false;
  });
  return numbers;
}

TEST(RangeIndex, NeighboursDoNotOverlap) {
  RangeIndex index;
  index.add({100, 50}, 1);
  EXPECT_EQ(found(index, {99, 1}), std::set<std::uint64_t>());
  EXPECT_EQ(found(index, {100, 1}), std::set<std::uint64_t>{1});
  EXPECT_EQ(found(index, {149, 1}), std::set<std::uint64_t>{1});
  EXPECT_EQ(found(index, {150, 1}), std::set<std::uint64_t>());
  EXPECT_EQ(found(index, {100, 0}), std::set<std::uint64_t>());
}

TEST(RangeIndex, EqualRangesAreKeptApartByTheirNumbers) {
  RangeIndex index;
  index.add({8, 8}, 1);
  index.add({8, 8}, 2);
  index.add({8, 0}, 3);
  EXPECT_TRUE(index.remove({8, 8}, 1));
  EXPECT_FALSE(index.remove({8, 8}, 1));
  EXPECT_FALSE(index.remove({8, 0}, 3));
  EXPECT_EQ(found(index, {0, 100}), std::set<std::uint64_t>{2});
}

TEST(RangeIndex, FindsWhatASearchOfAllFinds) {
  std::mt19937 random(1);
  const auto any = [&](unsigned below) { return random() % below; };
  RangeIndex index;
  std::vector<MemoryRange> ranges;
  for (std::uint64_t number = 0; number < 300; ++number) {
    const MemoryRange range{any(5000), 1 + any(1U << any(12))};
    ranges.push_back(range);
    index.add(range, number);
  }
  // The end of all memory.
  ranges.push_back({~std::uint64_t{0} - 9, 9});
  index.add(ranges.back(), 300);
  for (int i = 0; i < 2000; ++i) {
    const MemoryRange wanted{any(8000), 1 + any(500)};
    std::set<std::uint64_t> right;
    for (std::size_t number = 0; number < ranges.size(); ++number) {
      if (ranges[number].overlaps(wanted)) right.insert(number);
    }
    ASSERT_EQ(found(index, wanted), right) << wanted.first << ' ' << wanted.bytes;
  }
}

}  // namespace
}  // namespace weft::check
