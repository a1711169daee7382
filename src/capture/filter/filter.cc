#include "capture/filter/filter.h"

#include <algorithm>
#include <compare>
#include <optional>

#include "capture/filter/filter_text.h"

namespace weft::capture {
namespace {

using Relation = FilterComparison::Relation;

bool fits(std::strong_ordering order, Relation relation) {
  switch (relation) {
    case Relation::less:
      return order < 0;
    case Relation::at_most:
      return order <= 0;
    case Relation::greater:
      return order > 0;
    case Relation::at_least:
      return order >= 0;
    default:
      return order == 0;
  }
}

bool same_prefix(const std::array<std::byte, 16>& x, const std::array<std::byte, 16>& y,
                 unsigned bits) {
  constexpr unsigned byte_bits = 8;
  const std::size_t whole = bits / byte_bits;
  if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(whole), y.begin())) {
    return false;
  }
  const unsigned rest = bits % byte_bits;
  if (rest == 0) return true;
  const auto mask = static_cast<std::byte>(0xFFU << (byte_bits - rest));
  return (x[whole] & mask) == (y[whole] & mask);
}

bool fits_address(const HostAddress& address, const FilterLiteral& literal) {
  if (literal.lid || address.kind == HostAddress::Kind::lid) {
    return literal.lid && address.kind == HostAddress::Kind::lid &&
           address == HostAddress::lid(static_cast<std::uint16_t>(literal.number));
  }
  return same_prefix(mapped_address(address), literal.address, literal.prefix);
}

bool fits_text(std::string_view text, Relation relation, const FilterLiteral& literal) {
  const std::string lower = lower_case(text);
  return relation == Relation::contains ? lower.find(literal.text) != std::string::npos
                                        : lower == literal.text;
}

// Words are compared by their places.
bool fits_word(const FilterField& field, std::string_view text, Relation relation,
               const FilterLiteral& literal) {
  const auto place = word_place(field.words, lower_case(text));
  return place && fits(std::uint64_t{*place} <=> literal.number, relation);
}

bool fits(const FilterField& field, const FilterValue& value, Relation relation,
          const FilterLiteral& literal) {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) {
    return fits(*number <=> literal.number, relation);
  }
  if (const auto* time_ns = std::get_if<std::int64_t>(&value)) {
    return fits(*time_ns <=> literal.time_ns, relation);
  }
  if (const auto* address = std::get_if<HostAddress>(&value)) {
    return fits_address(*address, literal);
  }
  const auto text = std::get<std::string_view>(value);
  return field.type == FilterField::Type::text ? fits_text(text, relation, literal)
                                               : fits_word(field, text, relation, literal);
}

}  // namespace

bool FilterComparison::holds(const FilterRecord& record) const {
  bool present = false;
  bool any = false;
  const Relation tested = relation == Relation::unequal ? Relation::equal : relation;
  visit_field(field, record, [&](const FilterValue& value) {
    present = true;
    any = any || std::ranges::any_of(literals, [&](const FilterLiteral& literal) {
            return fits(filter_fields[field], value, tested, literal);
          });
  });
  if (relation == Relation::exists) return present;
  if (relation == Relation::unequal) return present && !any;
  return any;
}

bool Filter::takes(const FilterRecord& record) const {
  bool result = true;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    switch (step.kind) {
      case Step::Kind::compare:
        result = comparisons_[step.at].holds(record);
        break;
      case Step::Kind::invert:
        result = !result;
        break;
      case Step::Kind::jump_if_true:
        if (result) i = step.at - 1;
        break;
      case Step::Kind::jump_if_false:
        if (!result) i = step.at - 1;
        break;
    }
  }
  return result;
}

}  // namespace weft::capture
