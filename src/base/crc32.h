// Computes CRC-32 with Ethernet's polynomial, the checksum of InfiniBand's transport (wire/icrc.h).
// ISA-L picks the fastest instructions of this CPU at run time. Builds without ISA-L use tables.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace weft {

// A running checksum over several pieces. A value type: copying it forks the computation.
class Crc32 {
 public:
  void update(Bytes bytes);
  [[nodiscard]] std::uint32_t value() const { return value_; }

 private:
  std::uint32_t value_ = 0;
};

[[nodiscard]] std::uint32_t crc32(Bytes bytes);

}  // namespace weft
