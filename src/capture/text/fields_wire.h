// Reads integers at known places of a message whose end may not have been captured.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace weft::capture {

// Returns nullopt if the field does not lie within `bytes`.
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> field_le(Bytes bytes, std::size_t at) {
  if (bytes.size() < sizeof(T) || at > bytes.size() - sizeof(T)) return std::nullopt;
  return load_le<T>(bytes.data() + at);
}
template <std::unsigned_integral T>
[[nodiscard]] std::optional<T> field_be(Bytes bytes, std::size_t at) {
  if (bytes.size() < sizeof(T) || at > bytes.size() - sizeof(T)) return std::nullopt;
  return load_be<T>(bytes.data() + at);
}
[[nodiscard]] inline std::optional<std::uint8_t> field_8(Bytes bytes, std::size_t at) {
  return field_le<std::uint8_t>(bytes, at);
}

// A code of a protocol, with its name in static storage.
struct CodeName {
  std::uint32_t code;
  std::string_view name;
};

// Returns `otherwise` if the code is not in the table.
[[nodiscard]] inline std::string_view name_of(std::span<const CodeName> names, std::uint32_t code,
                                              std::string_view otherwise = "other") {
  const auto found = std::ranges::find(names, code, &CodeName::code);
  return found == names.end() ? otherwise : found->name;
}

}  // namespace weft::capture
