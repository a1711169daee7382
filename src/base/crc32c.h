// Computes CRC32C (Castagnoli), the checksum of MPA (RFC 5044 §4.4). ISA-L picks the fastest
// instructions of this CPU at run time. Builds without ISA-L use tables.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace weft {

// A running checksum over several pieces. A value type: copying it forks the computation.
class Crc32c {
 public:
  void update(Bytes bytes);
  [[nodiscard]] std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xFFFFFFFF;
};

[[nodiscard]] std::uint32_t crc32c(Bytes bytes);

}  // namespace weft
