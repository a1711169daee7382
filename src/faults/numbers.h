// Numbers with and without units, as they are written in the rules of faults.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::faults {

// A whole number without a sign, from `least`. On false `value` is undefined.
[[nodiscard]] bool read_count(std::string_view text, std::uint64_t least, std::uint64_t& value);
// "5ms", in nanoseconds.
[[nodiscard]] bool read_duration(std::string_view text, std::uint64_t& ns);
// "1MiB".
[[nodiscard]] bool read_amount(std::string_view text, std::uint64_t& bytes);

}  // namespace weft::faults
