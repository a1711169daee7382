// Bytes as a reader of RFCs and captures writes them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/bytes.h"

namespace weft::test {

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

inline namespace literals {

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

}  // namespace literals

inline std::vector<std::byte> copy_of(Bytes bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace weft::test
