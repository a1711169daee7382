// Formats quantities for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::capture {

// Returns "17 B", "4.1 kB" or "2.10 MB": powers of 1000, three digits.
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
// Returns "870 ns", "12.3 µs", "4.02 ms" or "1.50 s".
[[nodiscard]] std::string duration_text(std::int64_t ns);
// Returns "12.345678901": seconds with nine digits.
[[nodiscard]] std::string seconds_text(std::int64_t ns);
// Returns "2026-11-21 04:05:49.123456789 UTC".
[[nodiscard]] std::string date_text(std::int64_t ns);
// Returns "1 frame" or "2 frames".
[[nodiscard]] std::string count_text(std::uint64_t count, const char* noun);
// Returns "1st", "2nd", "3rd", "4th", "11th" or "21st".
[[nodiscard]] std::string ordinal_text(std::uint64_t number);
// Returns "once" or "2 times".
[[nodiscard]] std::string times_text(std::uint64_t count);
// Returns "2 packets and 1.00 kB", or only the one of both that is not 0.
[[nodiscard]] std::string amount_text(std::uint64_t packets, std::uint64_t bytes);
// Returns "1.00 kB again, in 2 packets", or "2 packets again" if they have no payload.
[[nodiscard]] std::string again_text(std::uint64_t packets, std::uint64_t bytes);

// Makes text from the wire safe for terminals and JSON: control characters and invalid UTF-8 become
// "\\x1b", and a backslash is doubled.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace weft::capture
