// The table of mapped buffers, which lies behind the ring in the same memory region. Each side
// writes the rows of the buffers that it has mapped into the table of its peer, by RDMA Write.
//
// A row, in network order:
//
//   0  8  offset that the peer names the buffer by
//   8  8  length; a row of length 0 maps nothing
//  16  8  address
//  24  4  rkey
//  28  4  0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stream/word_wire.h"
#include "weft/verbs/slice.hpp"

namespace weft::stream::detail {

inline constexpr std::uint32_t row_bytes = 32;

// The table begins at the first multiple of eight behind the ring.
[[nodiscard]] constexpr std::uint64_t table_offset(std::uint32_t ring_bytes) {
  return (std::uint64_t{ring_bytes} + 7) / 8 * 8;
}
// The size of a ring and its table.
[[nodiscard]] constexpr std::uint64_t region_bytes(std::uint32_t ring_bytes, std::uint32_t rows) {
  return table_offset(ring_bytes) + std::uint64_t{rows} * row_bytes;
}
// Behind them are words for the receives of the owner, which only it uses.
[[nodiscard]] constexpr std::uint64_t owned_bytes(std::uint32_t ring_bytes, std::uint32_t rows,
                                                  std::uint32_t receives) {
  return region_bytes(ring_bytes, rows) + std::uint64_t{receives} * word_bytes;
}

struct MapRow {
  std::uint64_t offset = 0;
  verbs::RemoteSlice memory;

  [[nodiscard]] std::array<std::byte, row_bytes> to_bytes() const;
  // `row` has row_bytes. There are no invalid rows: the peer names its own memory, and its device
  // checks each access.
  [[nodiscard]] static MapRow from_bytes(std::span<const std::byte> row);
  friend bool operator==(const MapRow&, const MapRow&) = default;
};

}  // namespace weft::stream::detail
