// Byte spans, and integers in network order (big-endian) and little-endian order. This file knows
// no protocol.
//
// These functions check nothing: the caller has checked the length. Code that parses or writes a
// format field after field takes base/byte_reader.h and base/byte_writer.h, which check each
// access.
#pragma once

#include <bit>
#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

// The `order` of the bytes at `at`. memcpy compiles to one load or store, but cannot be used in
// constant expressions, which go byte by byte.
template <std::unsigned_integral T, std::endian order>
[[nodiscard]] constexpr T load(const std::byte* at) {
  T value = 0;
  if (std::is_constant_evaluated()) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const std::size_t significance = order == std::endian::big ? sizeof(T) - 1 - i : i;
      value = static_cast<T>(value | std::to_integer<T>(at[i]) << (CHAR_BIT * significance));
    }
    return value;
  }
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == order ? value : byteswap(value);
}

template <std::unsigned_integral T, std::endian order>
constexpr void store(std::byte* at, T value) {
  if (std::is_constant_evaluated()) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const std::size_t significance = order == std::endian::big ? sizeof(T) - 1 - i : i;
      at[i] = static_cast<std::byte>(value >> (CHAR_BIT * significance) & 0xFF);
    }
    return;
  }
  if constexpr (std::endian::native != order) value = byteswap(value);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace detail

// Reads an unsigned integer in network order from `at`, which need not be aligned.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T load_be(const std::byte* at) {
  return detail::load<T, std::endian::big>(at);
}

template <std::unsigned_integral T>
constexpr void store_be(std::byte* at, T value) {
  detail::store<T, std::endian::big>(at, value);
}

// Least significant byte first: the CRC of MPA and the ICRC of InfiniBand are sent in this order.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T load_le(const std::byte* at) {
  return detail::load<T, std::endian::little>(at);
}

template <std::unsigned_integral T>
constexpr void store_le(std::byte* at, T value) {
  detail::store<T, std::endian::little>(at, value);
}

}  // namespace weft
