#include "check/registered_pages.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft::check {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

TEST(RegisteredPages, AnswersForPages) {
  RegisteredPages pages;
  EXPECT_FALSE(pages.any({page, page}));
  pages.add({3 * page - 1, 2});
  EXPECT_FALSE(pages.any({0, 2 * page}));
  EXPECT_TRUE(pages.any({2 * page, 1}));
  EXPECT_TRUE(pages.any({4 * page - 1, 1}));
  EXPECT_FALSE(pages.any({4 * page, 100 * page}));
  EXPECT_TRUE(pages.any({0, 100 * page}));
  EXPECT_FALSE(pages.any({2 * page, 0}));
}

TEST(RegisteredPages, CountsRegionsOfOnePage) {
  RegisteredPages pages;
  pages.add({page, 8});
  pages.add({page + 8, 8});
  pages.remove({page, 8});
  EXPECT_TRUE(pages.any({page, 1}));
  pages.remove({page + 8, 8});
  EXPECT_FALSE(pages.any({page, 1}));
  pages.remove({page, 8});
  EXPECT_FALSE(pages.any({page, 1}));
}

TEST(RegisteredPages, LargeRegionsTouchLittleMemory) {
  RegisteredPages pages;
  const MemoryRange large{5 * gib + page, 1024 * gib};
  pages.add(large);
  EXPECT_FALSE(pages.any({5 * gib, page}));
  EXPECT_TRUE(pages.any({5 * gib + page, 1}));
  EXPECT_TRUE(pages.any({700 * gib + 17, 1}));
  EXPECT_TRUE(pages.any({1029 * gib, page}));
  EXPECT_FALSE(pages.any({1029 * gib + page, gib}));
  pages.remove(large);
  EXPECT_FALSE(pages.any({0, 2000 * gib}));
}

TEST(RegisteredPages, KnowsNothingBehindUserMemory) {
  RegisteredPages pages;
  pages.add({~std::uint64_t{0} - page, page});
  EXPECT_FALSE(pages.any({~std::uint64_t{0} - page, page}));
}

TEST(RegisteredPages, ClearForgetsAll) {
  RegisteredPages pages;
  pages.add({page, page});
  pages.clear();
  EXPECT_FALSE(pages.any({page, page}));
  pages.add({page, page});
  EXPECT_TRUE(pages.any({page, page}));
}

}  // namespace
}  // namespace weft::check
