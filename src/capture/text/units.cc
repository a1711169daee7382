#include "capture/text/units.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>

#include "base/utf8.h"

namespace weft::capture {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

// Formats a value with three digits and a unit; each unit is a thousand times the one before.
template <std::size_t count>
std::string scaled(double value, const std::array<const char*, count>& units) {
  std::size_t unit = 0;
  // The borders here and below are those of rounding: 999.5 would be printed as 1000.
  while (value >= 999.5 && unit + 1 < count) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, units[unit]);
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes),
                std::array<const char*, 6>{"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string duration_text(std::int64_t ns) {
  return scaled(static_cast<double>(ns), std::array<const char*, 4>{"ns", "µs", "ms", "s"});
}

std::string seconds_text(std::int64_t ns) {
  // The negation has no sign, because the smallest number of 64 bits has no positive counterpart.
  const std::uint64_t size =
      ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:09}", ns < 0 ? "-" : "", size / second_ns, size % second_ns);
}

std::string date_text(std::int64_t ns) {
  std::int64_t seconds = ns / second_ns;
  std::int64_t rest = ns % second_ns;
  // Rounds towards the past, so that times before 1970 have a positive fraction.
  if (rest < 0) {
    rest += second_ns;
    --seconds;
  }
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:09} UTC",
                     fmt::gmtime(static_cast<std::time_t>(seconds)), rest);
}

std::string count_text(std::uint64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string ordinal_text(std::uint64_t number) {
  const bool teen = number % 100 / 10 == 1;
  const std::uint64_t last = teen ? 0 : number % 10;
  return fmt::format("{}{}", number, last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

std::string times_text(std::uint64_t count) {
  return count == 1 ? "once" : fmt::format("{} times", count);
}

std::string amount_text(std::uint64_t packets, std::uint64_t bytes) {
  if (packets == 0) return bytes_text(bytes);
  if (bytes == 0) return count_text(packets, "packet");
  return fmt::format("{} and {}", count_text(packets, "packet"), bytes_text(bytes));
}

std::string again_text(std::uint64_t packets, std::uint64_t bytes) {
  const std::string count = count_text(packets, "packet");
  return bytes == 0 ? count + " again" : fmt::format("{} again, in {}", bytes_text(bytes), count);
}

// The text may come from the wire, so control characters must not reach a terminal. A backslash is
// doubled, so that the result is not ambiguous.
std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t size = begins_with_c1_control(text) ? 0 : utf8_bytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (size == 0 || first < ' ' || first == 0x7F) {
      out += fmt::format("\\x{:02x}", first);
      size = 1;
    } else if (first == '\\') {
      out += "\\\\";
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace weft::capture
