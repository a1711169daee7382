// Reads and writes integers in the two byte orders of the wire. Knows no protocol.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weft/bytes.hpp"

namespace weft {

namespace detail {

constexpr std::uint8_t byteswap(std::uint8_t value) {
  return value;
}
constexpr std::uint16_t byteswap(std::uint16_t value) {
  return __builtin_bswap16(value);
}
constexpr std::uint32_t byteswap(std::uint32_t value) {
  return __builtin_bswap32(value);
}
constexpr std::uint64_t byteswap(std::uint64_t value) {
  return __builtin_bswap64(value);
}

}  // namespace detail

// Reads an unsigned integer in network order from `at`, which need not be aligned.
template <std::unsigned_integral T>
[[nodiscard]] inline T load_be(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == std::endian::big ? value : detail::byteswap(value);
}

template <std::unsigned_integral T>
inline void store_be(std::byte* at, T value) {
  if constexpr (std::endian::native != std::endian::big) value = detail::byteswap(value);
  std::memcpy(at, &value, sizeof value);
}

// Least significant byte first: the order of MPA's CRC and InfiniBand's ICRC.
template <std::unsigned_integral T>
[[nodiscard]] inline T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == std::endian::little ? value : detail::byteswap(value);
}

template <std::unsigned_integral T>
inline void store_le(std::byte* at, T value) {
  if constexpr (std::endian::native != std::endian::little) value = detail::byteswap(value);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace weft
