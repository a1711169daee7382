#include "base/shared_set.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace weft {
namespace {

TEST(SharedSet, HoldsEachObjectOnce) {
  SharedSet<int> set;
  const auto object = std::make_shared<int>(1);
  EXPECT_TRUE(set.add(object));
  EXPECT_FALSE(set.add(object));
  EXPECT_EQ(set.size(), 1U);
  EXPECT_EQ(set[0], object);
  EXPECT_EQ(set.remove(object.get()), object);
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.remove(object.get()), nullptr);
  EXPECT_TRUE(set.add(object));
}

// Removed from the front, from the back, and from the middle.
TEST(SharedSet, KeepsTheOthersWhereOneIsRemoved) {
  std::vector<std::shared_ptr<int>> objects;
  for (int i = 0; i < 9; ++i) objects.push_back(std::make_shared<int>(i));
  SharedSet<int> set;
  std::set<std::shared_ptr<int>> expected;
  for (const auto& object : objects) {
    set.add(object);
    expected.insert(object);
  }
  for (const int removed : {0, 8, 4, 7, 1, 2, 6, 3, 5}) {
    const auto& object = objects[static_cast<std::size_t>(removed)];
    EXPECT_EQ(set.remove(object.get()), object);
    expected.erase(object);
    EXPECT_EQ(std::set<std::shared_ptr<int>>(set.begin(), set.end()), expected);
    EXPECT_EQ(set.size(), expected.size());
  }
}

TEST(SharedSet, GivesUpItsReference) {
  SharedSet<int> set;
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = object;
  const int* const name = object.get();
  set.add(std::move(object));
  EXPECT_FALSE(watched.expired());
  set.remove(name).reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace weft
