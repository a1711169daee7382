#include "faults/numbers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <span>

namespace weft::faults {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Reads a number with its unit: "5ms".
// No unit has an empty name, so a number without a unit is refused.
bool read_with_unit(std::string_view text, std::span<const Unit> units, std::uint64_t& value) {
  const auto digits = std::ranges::find_if(
      text, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) == 0; });
  const auto count = static_cast<std::size_t>(digits - text.begin());
  const auto unit = std::ranges::find(units, text.substr(count), &Unit::name);
  if (unit == units.end() || !read_count(text.substr(0, count), 0, value)) return false;
  // The product must not wrap around to a small value.
  if (value > std::numeric_limits<std::uint64_t>::max() / unit->factor) return false;
  value *= unit->factor;
  return true;
}

constexpr std::array durations{Unit{"ns", 1}, Unit{"us", 1'000}, Unit{"ms", 1'000'000},
                               Unit{"s", 1'000'000'000}};
constexpr std::array amounts{Unit{"B", 1}, Unit{"KiB", std::uint64_t{1} << 10},
                             Unit{"MiB", std::uint64_t{1} << 20},
                             Unit{"GiB", std::uint64_t{1} << 30}};

}  // namespace

// from_chars() stops at the first other character and takes no sign for unsigned types, so the
// comparison of the end refuses all but digits.
bool read_count(std::string_view text, std::uint64_t least, std::uint64_t& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size() && value >= least;
}

bool read_duration(std::string_view text, std::uint64_t& ns) {
  return read_with_unit(text, durations, ns);
}

bool read_amount(std::string_view text, std::uint64_t& bytes) {
  return read_with_unit(text, amounts, bytes);
}

}  // namespace weft::faults
