// Bytes of a process, or of its peer.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::check {

struct MemoryRange {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] bool overlaps(const MemoryRange& other) const {
    return first < other.first + other.bytes && other.first < first + bytes;
  }
  // Whether all of the other's bytes are among these.
  [[nodiscard]] bool contains(const MemoryRange& other) const {
    return other.first >= first && other.bytes <= bytes &&
           other.first - first <= bytes - other.bytes;
  }
};
using MemoryRanges = std::vector<MemoryRange>;
[[nodiscard]] bool overlap(const MemoryRanges& some, const MemoryRanges& others);

}  // namespace weft::check
