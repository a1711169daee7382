// Computes reflected 32-bit CRCs by tables, eight bytes at a time. Used where ISA-L does not exist,
// as on 32-bit processors.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace weft {

// The tables of one polynomial, in its reflected form.
class CrcTable {
 public:
  explicit constexpr CrcTable(std::uint32_t polynomial) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t state = byte;
      for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? polynomial : 0);
      after_[0][byte] = state;
    }
    for (std::size_t zeros = 1; zeros < after_.size(); ++zeros) {
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t before = after_[zeros - 1][byte];
        after_[zeros][byte] = before >> 8 ^ after_[0][before & 0xFF];
      }
    }
  }

  // The state after `bytes`. The caller applies the initial value and the final inversion.
  [[nodiscard]] std::uint32_t update(std::uint32_t state, Bytes bytes) const;

 private:
  // after_[zeros][byte]: the effect of a byte on the state when that many zero bytes follow it.
  std::array<std::array<std::uint32_t, 256>, 8> after_{};
};

}  // namespace weft
