// A CRC32C in lanes: one is folded by VPCLMULQDQ, and the others are computed by the CRC32
// instruction, at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft::crc32c_lanes {

// Of fewer bytes the CRC is computed faster in another way.
inline constexpr std::size_t least_bytes = 2048;

// Whether the processor has the instructions.
[[nodiscard]] bool usable();

// Adds the first bytes to the state (see crc32c_state.h) and takes them off `bytes`: fewer than 248
// are left. At least one such block has to be there.
[[nodiscard]] std::uint32_t update(std::uint32_t state, Bytes& bytes);

}  // namespace weft::crc32c_lanes

namespace weft {

// A checksum of what is copied meanwhile. Each of five lanes has its part of every block, and goes
// on with its part of the next one, so that memory is read from its begin to its end. Needs
// crc32c_lanes::usable().
struct Crc32cLanes {
  static constexpr std::size_t block_bytes = 2048;
  static constexpr std::size_t folded_bytes = 1024;  // of a block, the first ones
  static constexpr std::size_t lane_bytes = 256;     // of each other lane

  Crc32cLanes();
  // Adds one block.
  void add(const std::byte* block);
  // Behind all blocks, where `before` is the state (see crc32c_state.h) before the first one.
  [[nodiscard]] std::uint32_t state(std::uint32_t before, std::size_t blocks) const;

  // guarded_code.cc knows the offsets.
  alignas(64) std::array<std::byte, 128> folded{};
  std::array<std::uint64_t, 4> lanes{};
  // Move what is folded to the next 128 bytes, and from its last 128 bytes in one block to its
  // first ones in the next block. See Crc32cFold for pairs of factors.
  std::array<std::uint64_t, 2> step;
  std::array<std::uint64_t, 2> jump;
  std::uint64_t lane_jump;  // moves another lane to its part of the next block
};

}  // namespace weft
