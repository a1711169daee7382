// Names for the fields of a header of fixed layout: where each is, and how wide. Views and emit()
// both use them, so that an offset is written once. Each field begins where the one before it ends:
//
//   namespace field::udp {
//   inline constexpr Field16 source_port{0};
//   inline constexpr Field16 destination_port{source_port.end()};
//   ...
//   static_assert(checksum.end() == UdpHeader::header_bytes);
//   }
//
// The accessors check nothing: a view or parse() has checked the length of the header once.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace weft::wire {

// An integer in network order. `header` is the first byte of the header.
template <std::unsigned_integral T>
struct Field {
  std::size_t at = 0;

  [[nodiscard]] constexpr std::size_t end() const { return at + sizeof(T); }
  [[nodiscard]] constexpr T load(const std::byte* header) const { return load_be<T>(header + at); }
  constexpr void store(std::byte* header, T value) const { store_be<T>(header + at, value); }
};

using Field8 = Field<std::uint8_t>;
using Field16 = Field<std::uint16_t>;
using Field32 = Field<std::uint32_t>;
using Field64 = Field<std::uint64_t>;

// Bytes without an order: an address, a key, or a reserved part.
template <std::size_t size>
struct FieldBytes {
  std::size_t at = 0;

  [[nodiscard]] constexpr std::size_t end() const { return at + size; }
  [[nodiscard]] std::array<std::byte, size> load(const std::byte* header) const {
    std::array<std::byte, size> bytes;
    std::memcpy(bytes.data(), header + at, size);
    return bytes;
  }
  void store(std::byte* header, const std::array<std::byte, size>& bytes) const {
    std::memcpy(header + at, bytes.data(), size);
  }
};

}  // namespace weft::wire
