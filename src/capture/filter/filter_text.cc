#include "capture/filter/filter_text.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace weft::capture {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array time_units{Unit{"ns", 1},   Unit{"us", 1e3}, Unit{"µs", 1e3},  Unit{"μs", 1e3},
                                Unit{"ms", 1e6}, Unit{"s", 1e9},  Unit{"min", 60e9}};
constexpr std::array byte_units{
    Unit{"B", 1},        Unit{"kB", 1e3},        Unit{"MB", 1e6},           Unit{"GB", 1e9},
    Unit{"KiB", 1024.0}, Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0},
};

std::optional<double> factor_of(std::span<const Unit> units, std::string_view name) {
  const auto unit = std::ranges::find(units, name, &Unit::name);
  return unit == units.end() ? std::nullopt : std::optional(unit->factor);
}

// A decimal number, and the unit behind it.
struct Quantity {
  double value = 0;
  std::string_view unit;
};

std::optional<Quantity> read_quantity(std::string_view text) {
  Quantity quantity;
  const char* const end = text.data() + text.size();
  const auto [at, error] =
      std::from_chars(text.data(), end, quantity.value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(quantity.value)) return std::nullopt;
  quantity.unit = {at, static_cast<std::size_t>(end - at)};
  return quantity;
}

// Whole numbers keep all of their 64 bits, and are hexadecimal after 0x.
bool read_whole(std::string_view text, std::uint64_t& number) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (hexadecimal) text.remove_prefix(2);
  const auto [at, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, hexadecimal ? 16 : 10);
  return error == std::errc{} && at == text.data() + text.size();
}

std::string read_number(std::string_view text, FilterLiteral& literal) {
  if (read_whole(text, literal.number)) return {};
  const auto quantity = read_quantity(text);
  const auto factor = quantity ? factor_of(byte_units, quantity->unit) : std::optional<double>{};
  constexpr double limit = 9e18;
  if (!factor || quantity->value < 0 || quantity->value * *factor > limit) {
    return fmt::format("'{}' is not a number such as 123, 0x7b or 64KiB", text);
  }
  literal.number = static_cast<std::uint64_t>(std::llround(quantity->value * *factor));
  return {};
}

std::string read_time(std::string_view text, FilterLiteral& literal) {
  const auto quantity = read_quantity(text);
  if (quantity && quantity->unit.empty() && quantity->value != 0) {
    return fmt::format("'{}' has no unit: ns, us, ms, s or min", text);
  }
  const auto factor = !quantity || quantity->unit.empty() ? std::optional(1.0)
                                                          : factor_of(time_units, quantity->unit);
  constexpr double limit = 9e18;
  if (!quantity || !factor || std::abs(quantity->value * *factor) > limit) {
    return fmt::format("'{}' is not a time such as 10ms or 1.5s", text);
  }
  literal.time_ns = static_cast<std::int64_t>(std::llround(quantity->value * *factor));
  return {};
}

std::string read_address(std::string_view text, FilterLiteral& literal) {
  const std::string wrong = fmt::format(
      "'{}' is not an address such as 10.0.0.7, 10.0.0.0/8, fe80::1 or \"LID 7\"", text);
  if (lower_case(text).starts_with("lid ")) {
    literal.lid = true;
    return read_whole(text.substr(4), literal.number) && literal.number <= 0xFFFF ? "" : wrong;
  }
  const std::size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  constexpr unsigned mapped_bits = 96;
  const bool ipv4 = inet_pton(AF_INET, host.c_str(), literal.address.data() + 12) == 1;
  if (ipv4) {
    literal.address[10] = literal.address[11] = std::byte{0xFF};
  } else if (inet_pton(AF_INET6, host.c_str(), literal.address.data()) != 1) {
    return wrong;
  }
  if (slash == std::string_view::npos) return {};
  std::uint64_t bits = 0;
  if (!read_whole(text.substr(slash + 1), bits) || bits > (ipv4 ? 32U : 128U)) return wrong;
  literal.prefix = static_cast<unsigned>(bits) + (ipv4 ? mapped_bits : 0);
  return {};
}

std::string read_word(const FilterField& field, std::string_view text, FilterLiteral& literal) {
  if (const auto place = word_place(field.words, lower_case(text))) {
    literal.number = *place;
    return {};
  }
  std::string list;
  for (const char letter : field.words) list += letter == ' ' ? ", " : std::string(1, letter);
  return fmt::format("'{}' is none of {}", text, list);
}

// Returns the number of letters to insert, remove or replace (Levenshtein's distance).
std::size_t distance(std::string_view x, std::string_view y) {
  std::vector<std::size_t> row(y.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < y.size(); ++j) {
      const std::size_t replaced = diagonal + (x[i] == y[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return lower;
}

std::optional<std::size_t> word_place(std::string_view words, std::string_view word) {
  for (std::size_t place = 0;; ++place) {
    const std::size_t space = words.find(' ');
    if (words.substr(0, space) == word) return place;
    if (space == std::string_view::npos) return std::nullopt;
    words.remove_prefix(space + 1);
  }
}

std::array<std::byte, 16> mapped_address(const HostAddress& address) {
  if (address.kind != HostAddress::Kind::ipv4) return address.bytes;
  std::array<std::byte, 16> mapped{};
  mapped[10] = mapped[11] = std::byte{0xFF};
  std::copy_n(address.bytes.begin(), 4, mapped.begin() + 12);
  return mapped;
}

std::string read_literal(const FilterField& field, std::string_view text, FilterLiteral& literal) {
  switch (field.type) {
    case FilterField::Type::number:
      return read_number(text, literal);
    case FilterField::Type::time:
      return read_time(text, literal);
    case FilterField::Type::address:
      return read_address(text, literal);
    case FilterField::Type::word:
    case FilterField::Type::level:
      return read_word(field, text, literal);
    case FilterField::Type::text:
      break;
  }
  literal.text = lower_case(text);
  return {};
}

std::optional<std::size_t> find_field(std::string_view name) {
  const auto field = std::ranges::find(filter_fields, name, &FilterField::name);
  if (field == filter_fields.end()) return std::nullopt;
  return static_cast<std::size_t>(field - filter_fields.begin());
}

std::string no_field_text(std::string_view name) {
  constexpr std::size_t longest = 40;  // longer names are far from each field
  constexpr std::size_t near = 3;
  const std::string text = fmt::format("'{}' is not a field", name);
  if (name.size() > longest) return text;
  const auto nearest = std::ranges::min_element(filter_fields, {}, [&](const FilterField& field) {
    return distance(lower_case(name), field.name);
  });
  if (distance(lower_case(name), nearest->name) > near) {
    return text + "; `weft help filters` lists them";
  }
  return fmt::format("{}; did you mean {}?", text, nearest->name);
}

}  // namespace weft::capture
