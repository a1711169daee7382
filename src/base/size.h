// Converts 64-bit numbers of the wire and of files to sizes and indices of this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace weft {

// Throws std::length_error if the number does not fit, which is possible only on 32-bit machines.
[[nodiscard]] constexpr std::size_t to_size(std::uint64_t number) {
  const auto size = static_cast<std::size_t>(number);
  if (size != number) throw std::length_error("more bytes than this machine has addresses");
  return size;
}

}  // namespace weft
