#include "device/deadlines.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::device {
namespace {

TEST(Deadlines, ComeInTheOrderOfTime) {
  Deadlines<int> deadlines;
  const auto late = std::make_shared<int>(2);
  const auto soon = std::make_shared<int>(1);
  EXPECT_TRUE(deadlines.add(20, late));
  EXPECT_TRUE(deadlines.add(10, soon));
  EXPECT_FALSE(deadlines.add(10, late));
  EXPECT_EQ(deadlines.first(), 10U);
  EXPECT_EQ(deadlines.take_first(), soon);
  EXPECT_EQ(deadlines.take_first(), late);
  EXPECT_EQ(deadlines.first(), 20U);
  EXPECT_EQ(deadlines.take_first(), late);
  EXPECT_EQ(deadlines.first(), std::nullopt);
  EXPECT_EQ(deadlines.take_first(), nullptr);
}

TEST(Deadlines, OfWhatIsGoneCountOnlyForFirst) {
  Deadlines<int> deadlines;
  const auto there = std::make_shared<int>(1);
  deadlines.add(10, std::make_shared<int>(0));
  deadlines.add(20, there);
  EXPECT_EQ(deadlines.first(), 10U);
  EXPECT_FALSE(deadlines.may_be_due(9));
  EXPECT_TRUE(deadlines.may_be_due(10));
  EXPECT_EQ(deadlines.first_alive(), 20U);
  EXPECT_FALSE(deadlines.may_be_due(19));
  EXPECT_EQ(deadlines.size(), 1U);
  EXPECT_EQ(deadlines.take_first(), there);
  EXPECT_FALSE(deadlines.may_be_due(~std::uint64_t{0} - 1));
}

// A server whose clients come and go has one for each of them, which is due a minute later.
TEST(Deadlines, OfWhatIsGoneTakeNoMemory) {
  Deadlines<int> deadlines;
  std::vector<std::shared_ptr<int>> there;
  for (int i = 0; i < 1000; ++i) {
    there.push_back(std::make_shared<int>(i));
    deadlines.add(60, there.back());
  }
  for (int i = 0; i < 100'000; ++i) {
    deadlines.add(60, std::make_shared<int>(i));
    ASSERT_LE(deadlines.size(), 2100U);
  }
  // None of the others is lost.
  std::size_t found = 0;
  while (deadlines.first()) found += deadlines.take_first() ? 1 : 0;
  EXPECT_EQ(found, there.size());
}

}  // namespace
}  // namespace weft::device
