// When the pages of rings are given back, without a stream.
#include "stream/idle_rings.h"

#include <gtest/gtest.h>

namespace weft::stream::detail {
namespace {

using namespace std::chrono_literals;

constexpr IdleRings::Time start{1000s};

IdleRings used_rings() {
  IdleRings rings;
  rings.enable();
  rings.note_use(IdleRings::kept_bytes + 1);
  return rings;
}

TEST(IdleRings, TheFirstBytesNeedNoCheck) {
  IdleRings rings;
  rings.enable();
  rings.note_use(IdleRings::kept_bytes);
  EXPECT_FALSE(rings.wants_check());
  rings.note_use(IdleRings::kept_bytes + 1);
  EXPECT_TRUE(rings.wants_check());
}

TEST(IdleRings, PinnedRingsAreLeftAlone) {
  IdleRings rings;
  rings.note_use(1 << 30);
  EXPECT_FALSE(rings.wants_check());
}

TEST(IdleRings, OneCheckIsPlannedAtATime) {
  IdleRings rings = used_rings();
  const auto at = rings.plan(start, 100);
  EXPECT_EQ(at, start + IdleRings::first_pause);
  EXPECT_FALSE(rings.wants_check());
  EXPECT_FALSE(rings.due(at - 1ns));
  EXPECT_TRUE(rings.due(at));
  EXPECT_FALSE(rings.planned());
  EXPECT_TRUE(rings.wants_check()) << "the pages were not given back";
}

TEST(IdleRings, TrafficIsSeen) {
  IdleRings rings = used_rings();
  (void)rings.plan(start, 100);
  EXPECT_TRUE(rings.is_quiet(100));
  EXPECT_FALSE(rings.is_quiet(101));
}

// A peer that does not read costs less and less.
TEST(IdleRings, AQuietStreamIsCheckedLessOften) {
  IdleRings rings = used_rings();
  auto now = rings.plan(start, 100);
  auto pause = IdleRings::first_pause;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(rings.due(now));
    const auto next = rings.plan(now, 100);
    EXPECT_GE(next - now, pause);
    EXPECT_LE(next - now, IdleRings::longest_pause);
    pause = std::chrono::duration_cast<std::chrono::seconds>(next - now);
    now = next;
  }
  EXPECT_EQ(pause, IdleRings::longest_pause);
  ASSERT_TRUE(rings.due(now));
  EXPECT_EQ(rings.plan(now, 200), now + IdleRings::first_pause);
}

TEST(IdleRings, AfterwardsOnlyNewUseCounts) {
  IdleRings rings = used_rings();
  ASSERT_TRUE(rings.due(rings.plan(start, 100)));
  rings.given_back();
  EXPECT_FALSE(rings.wants_check());
  rings.note_use(IdleRings::kept_bytes + 1);
  EXPECT_TRUE(rings.wants_check());
}

}  // namespace
}  // namespace weft::stream::detail
