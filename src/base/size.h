// Numbers of 64 bits, as the wire and files have them, as sizes and indices of this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace weft {

// Throws where the number does not fit, which is never so on 64-bit machines; it is never cut.
[[nodiscard]] constexpr std::size_t to_size(std::uint64_t number) {
  const auto size = static_cast<std::size_t>(number);
  if (size != number) throw std::length_error("more bytes than this machine has addresses");
  return size;
}

}  // namespace weft
