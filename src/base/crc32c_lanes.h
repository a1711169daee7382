// A CRC32C in four lanes: one is folded by VPCLMULQDQ, and three are computed by the CRC32
// instruction, at the same time.
#pragma once

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
