// The inside of a CRC32C (see crc32c.h), for code that computes it while it copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weft {

// The state before the first byte. The checksum is the complement of the state behind the last one.
inline constexpr std::uint32_t crc32c_begin = 0xFFFFFFFF;
[[nodiscard]] std::uint32_t update_crc32c(std::uint32_t state, Bytes bytes);

// A checksum while vector instructions compute it: each block of the message is multiplied and
// added to the next one, until a single block is left, which has the CRC of all of them.
struct Crc32cFold {
  static constexpr std::size_t block_bytes = 256;

  explicit Crc32cFold(std::uint32_t state);
  // Of the block that is left.
  [[nodiscard]] std::uint32_t state() const;

  // Before the first block: what is to be added to it. A state is the same as if it were added to
  // the next four bytes, and were 0. Behind the last block: what is left.
  alignas(64) std::array<std::byte, block_bytes> block{};
  // They multiply the first and the second half of each 16 bytes: x^(2048+63) and x^2047 modulo the
  // polynomial, with their bits in reverse order. See Gopal et al., "Fast CRC Computation for
  // Generic Polynomials Using PCLMULQDQ Instruction", 2009.
  std::array<std::uint64_t, 2> factors{0xE9A5D8BE00000000, 0x1426A81500000000};
};

}  // namespace weft
