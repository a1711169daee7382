// The set of frames of an export.
#include "capture/report/frame_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace weft::capture::test {
namespace {

TEST(FrameRanges, HasExactlyWhatWasAdded) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    FrameRanges ranges;
    std::set<std::uint64_t> wanted;
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t first = random() % 300;
      const std::uint64_t last = first + random() % 10;
      ranges.add(first, last);
      for (std::uint64_t frame = first; frame <= last; ++frame) wanted.insert(frame);
    }
    for (std::uint64_t frame = 0; frame < 320; ++frame) {
      EXPECT_EQ(ranges.contains(frame), wanted.contains(frame)) << frame;
    }
  }
}

TEST(FrameRanges, ATurnedRangeIsARange) {
  FrameRanges ranges;
  ranges.add(9, 5);
  EXPECT_TRUE(ranges.contains(7));
  EXPECT_FALSE(ranges.contains(4));
}

TEST(FrameRanges, JoinsWhatIsNearWhenThereAreTooMany) {
  FrameRanges ranges;
  constexpr std::uint64_t count = 100'000;
  for (std::uint64_t i = 0; i < count; ++i) ranges.add(10 * i, 10 * i);
  ranges.add(100 * count, 100 * count);
  EXPECT_LE(ranges.size(), FrameRanges::max_ranges);
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_TRUE(ranges.contains(10 * i));
  EXPECT_FALSE(ranges.contains(50 * count));
}

}  // namespace
}  // namespace weft::capture::test
