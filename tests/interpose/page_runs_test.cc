#include "interpose/shared_heap/page_runs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace weft::interpose {
namespace {

constexpr std::uint32_t none = PageRuns::none;

class Runs {
 public:
  explicit Runs(std::uint32_t pages) : memory_(PageRuns::memory_bytes(pages) / 8 + 1) {
    runs_.begin(memory_.data(), pages);
  }
  PageRuns* operator->() { return &runs_; }

 private:
  std::vector<std::uint64_t> memory_;
  PageRuns runs_;
};

TEST(PageRuns, FreePagesBecomeOneRunAgain) {
  Runs runs(64);
  const std::uint32_t first = runs->take(10, 1);
  const std::uint32_t second = runs->take(20, 1);
  const std::uint32_t third = runs->take(34, 1);
  EXPECT_EQ(runs->take(1, 1), none);
  EXPECT_EQ(runs->used_pages(), 64);
  runs->give(first, true);
  runs->give(third, true);
  runs->give(second, true);
  EXPECT_EQ(runs->used_pages(), 0);
  EXPECT_EQ(runs->dirty_pages(), 64);
  EXPECT_EQ(runs->take(64, 1), 0);
  EXPECT_TRUE(runs->is_dirty(0));
}

TEST(PageRuns, CleanAndDirtyRunsJoinOnlyOnceAllAreClean) {
  Runs runs(64);
  runs->give(runs->take(10, 1), true);
  EXPECT_EQ(runs->dirty_pages(), 10);
  EXPECT_EQ(runs->take(64, 1), none);
  unsigned cleaned = 0;
  runs->clean_free_runs([&](std::uint32_t first, std::uint32_t pages) {
    EXPECT_EQ(first, 0);
    cleaned += pages;
    return true;
  });
  EXPECT_EQ(cleaned, 10);
  EXPECT_EQ(runs->dirty_pages(), 0);
  EXPECT_EQ(runs->take(64, 1), 0);
  EXPECT_FALSE(runs->is_dirty(0));
}

TEST(PageRuns, AlignmentLeavesTheRestFree) {
  Runs runs(64);
  EXPECT_EQ(runs->take(1, 1), 0);
  EXPECT_EQ(runs->take(4, 16), 16);
  EXPECT_EQ(runs->take(40, 1), 20);
  EXPECT_EQ(runs->take(15, 1), 1);
  EXPECT_EQ(runs->take(4, 1), 60);
  EXPECT_EQ(runs->used_pages(), 64);
  EXPECT_EQ(runs->start_of(35), 20);
}

TEST(PageRuns, ARunGrowsIntoFreePagesOnly) {
  Runs runs(32);
  const std::uint32_t first = runs->take(8, 1);
  const std::uint32_t second = runs->take(8, 1);
  EXPECT_FALSE(runs->resize(first, 9));
  EXPECT_TRUE(runs->resize(second, 24));
  EXPECT_FALSE(runs->resize(second, 25));
  EXPECT_TRUE(runs->resize(second, 2));
  EXPECT_EQ(runs->used_pages(), 10);
  EXPECT_EQ(runs->dirty_pages(), 22);
  EXPECT_EQ(runs->start_of(second + 2), none);
}

// Against a plain list of which run has each page.
TEST(PageRuns, ManyStepsAgreeWithAPlainList) {
  const char* const given = std::getenv("WEFT_SEED");
  const unsigned seed =
      given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
  SCOPED_TRACE(testing::Message() << "WEFT_SEED=" << seed);
  std::mt19937 engine(seed);
  const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
  constexpr std::uint32_t count = 300;
  Runs runs(count);
  std::vector<std::uint32_t> owner(count, none);
  const auto paint = [&](std::uint32_t first, std::uint32_t pages, std::uint32_t value) {
    for (std::uint32_t page = first; page < first + pages; ++page) {
      ASSERT_EQ(owner[page], value == none ? first : none);
      owner[page] = value;
    }
  };
  for (int step = 0; step < 20000; ++step) {
    const std::uint32_t page = random() % count;
    const std::uint32_t alignment = 1U << random() % 5;
    if (random() % 2 == 0) {
      const std::uint32_t pages = 1 + random() % 40;
      const std::uint32_t first = runs->take(pages, alignment);
      if (first == none) continue;
      ASSERT_EQ(first % alignment, 0);
      paint(first, pages, first);
    } else if (owner[page] != none) {
      const std::uint32_t first = owner[page];
      const std::uint32_t pages = runs->length(first);
      if (random() % 4 == 0 && runs->resize(first, 1 + random() % 40)) {
        paint(first, pages, none);
        paint(first, runs->length(first), first);
      } else {
        paint(first, pages, none);
        runs->give(first, random() % 2 == 0);
      }
    }
    if (random() % 500 == 0) {
      runs->clean_free_runs([&](std::uint32_t, std::uint32_t) { return random() % 8 != 0; });
    }
    std::uint32_t used = 0;
    for (std::uint32_t each = 0; each < count; ++each) {
      ASSERT_EQ(runs->start_of(each), owner[each]);
      used += owner[each] != none ? 1 : 0;
    }
    ASSERT_EQ(runs->used_pages(), used);
  }
}

}  // namespace
}  // namespace weft::interpose
