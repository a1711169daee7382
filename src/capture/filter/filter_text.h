// Texts, words and addresses of filter expressions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "capture/filter/filter.h"

namespace weft::capture {

// Converts the letters of ASCII.
[[nodiscard]] std::string lower_case(std::string_view text);
// Returns the place of a word, from 0, in a list that is separated by spaces.
[[nodiscard]] std::optional<std::size_t> word_place(std::string_view words, std::string_view word);
// Returns an IPv6 address or GID, or an IPv4 address mapped into IPv6.
[[nodiscard]] std::array<std::byte, 16> mapped_address(const HostAddress& address);
// Converts the text of a value to the type of the field. Returns one sentence about what is wrong
// with it, empty if nothing is.
[[nodiscard]] std::string read_literal(const FilterField& field, std::string_view text,
                                       FilterLiteral& literal);
// Returns the index of a field; nothing if there is none of this name.
[[nodiscard]] std::optional<std::size_t> find_field(std::string_view name);
// Returns a sentence about a name that is not a field, with the name that was probably meant.
[[nodiscard]] std::string no_field_text(std::string_view name);

}  // namespace weft::capture
