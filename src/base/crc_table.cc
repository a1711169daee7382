#include "base/crc_table.h"

namespace weft {

// Slicing by eight: the tables give the effect of each of eight bytes at its distance from the end,
// and CRCs are linear, so the effects add up by XOR.
std::uint32_t CrcTable::update(std::uint32_t state, Bytes bytes) const {
  while (bytes.size() >= 8) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint32_t byte = std::to_integer<std::uint32_t>(bytes[i]);
      // The state has four bytes, which meet the first four of the eight.
      if (i < 4) byte ^= state >> 8 * i & 0xFF;
      // Of the eight bytes, 7 - i follow this one.
      next ^= after_[7 - i][byte];
    }
    state = next;
    bytes = bytes.subspan(8);
  }
  // Fewer than eight bytes are left.
  for (const std::byte byte : bytes) {
    state = state >> 8 ^ after_[0][(state ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  }
  return state;
}

}  // namespace weft
