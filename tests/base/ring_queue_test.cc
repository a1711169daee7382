#include "base/ring_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <string>

namespace weft {
namespace {

TEST(RingQueue, TakesNoMemoryBeforeTheFirstItem) {
  RingQueue<std::string> queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.capacity(), 0U);
  queue.push_back("one");
  EXPECT_GT(queue.capacity(), 0U);
  queue.clear();
  EXPECT_EQ(queue.capacity(), 0U);
}

TEST(RingQueue, KeepsLittleMemoryWhenItIsEmpty) {
  RingQueue<int> queue;
  for (int i = 0; i < 1000; ++i) queue.push_back(i);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(queue.front(), i);
    queue.pop_front();
  }
  EXPECT_EQ(queue.capacity(), 0U);
  queue.push_back(1);
  const std::size_t few = queue.capacity();
  queue.pop_front();
  EXPECT_EQ(queue.capacity(), few) << "the next item allocates again";
}

TEST(RingQueue, MovesItemsThatCannotBeCopied) {
  RingQueue<std::unique_ptr<int>> queue;
  for (int i = 0; i < 20; ++i) queue.push_back(std::make_unique<int>(i));
  queue.erase(10);
  for (int i = 0; i < 20; ++i) {
    if (i == 10) continue;
    ASSERT_EQ(*queue.front(), i);
    queue.pop_front();
  }
  EXPECT_TRUE(queue.empty());
}

// Items of all kinds are destroyed exactly once: the sanitizers see it.
TEST(RingQueue, DoesWhatADequeDoes) {
  std::mt19937_64 random(1);  // NOLINT(cert-msc51-cpp): each run is the same
  RingQueue<std::string> queue;
  std::deque<std::string> expected;
  for (int i = 0; i < 20'000; ++i) {
    const auto choice = random() % 16;
    if (choice < 8) {
      const std::string item(random() % 40, static_cast<char>('a' + i % 26));
      queue.push_back(item);
      expected.push_back(item);
    } else if (choice < 12 && !expected.empty()) {
      queue.pop_front();
      expected.pop_front();
    } else if (choice < 13 && !expected.empty()) {
      queue.pop_back();
      expected.pop_back();
    } else if (choice < 14 && !expected.empty()) {
      const std::size_t index = random() % expected.size();
      queue.erase(index);
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (random() % 100 == 0) {
      queue.clear();
      expected.clear();
    }
    ASSERT_EQ(queue.size(), expected.size());
    for (std::size_t at = 0; at < expected.size(); at += 1 + expected.size() / 8) {
      ASSERT_EQ(queue[at], expected[at]);
    }
  }
}

}  // namespace
}  // namespace weft
