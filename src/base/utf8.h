// Well-formed UTF-8 in texts that may come from anywhere.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

// The size of the well-formed sequence at the beginning of a text that is not empty (RFC 3629 §4);
// 0 if there is none.
[[nodiscard]] constexpr std::size_t utf8_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = at(1);
  const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                   (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return bad ? 0 : size;
}

// Whether the text begins with a character from U+0080 to U+009F. Terminals obey these like the
// control characters of ASCII.
[[nodiscard]] constexpr bool begins_with_c1_control(std::string_view text) {
  return text.size() > 1 && static_cast<unsigned char>(text[0]) == 0xC2 &&
         static_cast<unsigned char>(text[1]) >= 0x80 && static_cast<unsigned char>(text[1]) < 0xA0;
}

}  // namespace weft
