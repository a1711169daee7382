// What every codec test does with bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "support/hex.h"
#include "wire/error.h"

namespace weft::wire {

using test::copy_of;
using namespace test::literals;

template <std::size_t... sizes>
constexpr auto joined(const std::array<std::byte, sizes>&... parts) {
  std::array<std::byte, (sizes + ...)> whole{};
  auto at = whole.begin();
  ((at = std::copy(parts.begin(), parts.end(), at)), ...);
  return whole;
}

// The value's bytes, between guards that show where emit writes beyond them.
template <typename Value>
std::vector<std::byte> emitted(const Value& value, std::size_t size) {
  constexpr std::byte guard{0xEE};
  std::vector<std::byte> out(size + 2, guard);
  value.emit(MutableBytes(out).subspan(1, size));
  EXPECT_EQ(out.front(), guard);
  EXPECT_EQ(out.back(), guard);
  return {std::next(out.begin()), std::prev(out.end())};
}

template <typename Value>
std::vector<std::byte> emitted(const Value& value) {
  return emitted(value, Value::header_bytes);
}

// Each cut lives in memory of its own size, so that a sanitizer sees a read beyond it.
template <typename Parse>
void expect_truncated_below(std::size_t size, Bytes whole, Parse parse) {
  for (std::size_t count = 0; count < size; ++count) {
    const auto cut = copy_of(whole.first(count));
    const auto result = parse(Bytes(cut));
    ASSERT_FALSE(result.ok()) << "cut to " << count << " bytes";
    EXPECT_EQ(result.error(), WireError::truncated) << "cut to " << count << " bytes";
  }
}

}  // namespace weft::wire
