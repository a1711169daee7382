// The control region, which each side lets its peer write to, and the records in it. All in network
// order.
//
//   0   8  how many records the peer has taken from the ring in the region of the other side
//  64   -  the ring: 32 bytes for each slot
//
// A record announces a buffer:
//
//   0   4  its number, from 1; record n is in slot (n - 1) modulo slots
//   4   8  address of the buffer
//  12   8  length
//  20   4  rkey
//  24   4  the user's tag
//  28   4  CRC32C of the 28 bytes before
//
// The CRC shows when a record is complete: the bytes of an RDMA Write may be placed in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/verbs/slice.hpp"

namespace weft::connection::detail {

struct ControlLayout {
  static constexpr std::size_t count_bytes = 8;
  static constexpr std::size_t ring_offset = 64;
  static constexpr std::size_t record_bytes = 32;

  // The size of a region with a ring of `slots`.
  [[nodiscard]] static constexpr std::size_t bytes(std::uint16_t slots) {
    return ring_offset + slots * record_bytes;
  }
  // Where record `number` is; `slots` is not zero.
  [[nodiscard]] static constexpr std::size_t record_offset(std::uint32_t number,
                                                           std::uint16_t slots) {
    return ring_offset + (number - 1) % slots * record_bytes;
  }
};

// The count at the beginning of the region.
using CountBytes = std::array<std::byte, ControlLayout::count_bytes>;
[[nodiscard]] CountBytes count_to_bytes(std::uint64_t count);
[[nodiscard]] std::uint64_t count_from_bytes(const CountBytes& bytes);

struct ControlRecord {
  static constexpr std::size_t encoded_bytes = ControlLayout::record_bytes;

  std::uint32_t number = 0;
  verbs::RemoteSlice buffer;
  std::uint32_t tag = 0;

  [[nodiscard]] std::array<std::byte, encoded_bytes> to_bytes() const;
  // Returns nothing unless the bytes are the whole record `number`: the slot may still have the
  // record of the round before, or the peer may be writing at this moment.
  [[nodiscard]] static std::optional<ControlRecord> parse(
      std::span<const std::byte, encoded_bytes> bytes, std::uint32_t number);
  friend bool operator==(const ControlRecord&, const ControlRecord&) = default;
};

}  // namespace weft::connection::detail
