// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::capture {

// "17 B", "4.1 kB", "2.10 MB": powers of 1000, three digits.
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
// "870 ns", "12.3 µs", "4.02 ms", "1.50 s"
[[nodiscard]] std::string duration_text(std::int64_t ns);
// "12.345678901": seconds with nine digits.
[[nodiscard]] std::string seconds_text(std::int64_t ns);
// "2026-11-21 04:05:49.123456789 UTC"
[[nodiscard]] std::string date_text(std::int64_t ns);
// "1 frame", "2 frames"
[[nodiscard]] std::string count_text(std::uint64_t count, const char* noun);

// Text from the wire, safe for terminals and JSON: control characters and what is no UTF-8 become
// "\\x1b", and a backslash is doubled.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace weft::capture
