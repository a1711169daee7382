// Maps a range of bytes of a scatter/gather list to memory.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "iwarp/host.h"

namespace weft::iwarp {

[[nodiscard]] inline std::uint64_t total_bytes(std::span<const LocalSlice> slices) {
  std::uint64_t total = 0;
  for (const auto& slice : slices) total += slice.length_bytes;
  return total;
}

// Appends the memory of bytes [offset, offset + length) of the list, which must be that long. Each
// slice in use is checked whole, not only its part, so that a wrong lkey or length shows with the
// first segment of a message. On a fault `out` may hold some pieces already.
[[nodiscard]] inline Fault map_slices(LocalMemory& registered, std::span<const LocalSlice> slices,
                                      std::uint64_t offset, std::uint64_t length, bool for_writing,
                                      std::vector<iovec>& out) {
  for (const auto& slice : slices) {
    if (length == 0) break;
    if (offset >= slice.length_bytes) {
      offset -= slice.length_bytes;
      continue;
    }
    const Memory memory = registered.local_memory(slice, for_writing);
    if (memory.fault != Fault::none) return memory.fault;
    const std::uint64_t part = std::min(length, slice.length_bytes - offset);
    out.push_back({memory.at + offset, static_cast<std::size_t>(part)});
    offset = 0;
    length -= part;
  }
  return Fault::none;
}

}  // namespace weft::iwarp
