// Bytes as a reader of RFCs and captures writes them, and what every codec test does with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "wire/error.h"

namespace weft::wire {

template <std::size_t size>
struct HexText {
  // Implicit, for a literal operator.
  consteval HexText(const char (&from)[size]) { std::copy_n(from, size, text.begin()); }

  [[nodiscard]] consteval std::size_t digits() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return c != ' ' && c != '\0'; }));
  }

  std::array<char, size> text{};
};

consteval int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  throw "not a lower-case hexadecimal digit";
}

// "00 2a4143"_hex is an array of four bytes; spaces only group.
template <HexText hex>
consteval auto operator""_hex() {
  static_assert(hex.digits() % 2 == 0);
  std::array<std::byte, hex.digits() / 2> bytes{};
  std::size_t digit = 0;
  for (const char c : hex.text) {
    if (c == ' ' || c == '\0') continue;
    std::byte& byte = bytes[digit++ / 2];
    byte = (byte << 4) | static_cast<std::byte>(hex_digit(c));
  }
  return bytes;
}

template <std::size_t... sizes>
constexpr auto joined(const std::array<std::byte, sizes>&... parts) {
  std::array<std::byte, (sizes + ...)> whole{};
  auto at = whole.begin();
  ((at = std::copy(parts.begin(), parts.end(), at)), ...);
  return whole;
}

inline std::vector<std::byte> copy_of(Bytes bytes) {
  return {bytes.begin(), bytes.end()};
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
