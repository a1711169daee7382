#include "base/kernel_random.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include "support/refuse.h"

namespace weft {
namespace {

// Words in which each bit is set about as often as not: a constant or missing part of a block
// shows at once, and a good generator fails this once in 10^20.
void expect_random(const std::vector<std::uint32_t>& words) {
  for (unsigned bit = 0; bit < 32; ++bit) {
    const auto set = std::ranges::count_if(words, [bit](auto word) { return (word >> bit) & 1; });
    EXPECT_NEAR(static_cast<double>(set), static_cast<double>(words.size()) / 2, 500) << bit;
  }
  const std::set<std::uint32_t> different(words.begin(), words.end());
  EXPECT_GT(different.size(), words.size() - 20);
}

std::vector<std::uint32_t> draw() {
  KernelRandom random;
  std::vector<std::uint32_t> words(10'000);
  std::ranges::generate(words, [&random] { return random.next(); });
  return words;
}

TEST(KernelRandom, GivesRandomWords) {
  expect_random(draw());
  EXPECT_NE(draw(), draw());
}

TEST(KernelRandom, BoundsAreKeptAndReached) {
  KernelRandom random;
  std::vector<int> seen(6);
  for (int i = 0; i < 6000; ++i) ++seen.at(random.below(6));
  for (const int count : seen) EXPECT_NEAR(count, 1000, 250);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0U);
}

// The fallbacks are as good, and two uses give different words.
void draw_without(const std::vector<test::RefusedCall>& calls) {
  const bool possible = test::run_without(calls, EPERM, [&] {
    const auto words = draw();
    expect_random(words);
    EXPECT_NE(words, draw());
    EXPECT_NE(random_word(), random_word());
    std::array<std::uint32_t, 4> key{};
    std::memcpy(key.data(), reinterpret_cast<const void*>(getauxval(AT_RANDOM)), sizeof key);
    for (const std::uint32_t part : key) EXPECT_EQ(std::ranges::count(words, part), 0);
  });
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
}

TEST(KernelRandom, ReadsTheDeviceWhereTheCallIsRefused) {
  draw_without({SYS_getrandom});
}

TEST(KernelRandom, ExpandsTheAuxiliaryVectorWhereNothingElseIsLeft) {
  draw_without({SYS_getrandom, SYS_openat});
}

}  // namespace
}  // namespace weft
