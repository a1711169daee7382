#include "stream/maps.h"

#include <algorithm>

namespace weft::stream::detail {

std::optional<std::uint32_t> Maps::free_row() const {
  const auto found =
      std::ranges::find_if(rows_, [](const Mapping& row) { return row.memory.size_bytes() == 0; });
  if (found == rows_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - rows_.begin());
}

// A mapping is named by exactly the memory that was mapped.
std::optional<std::uint32_t> Maps::find(std::uint64_t address, std::uint64_t bytes) const {
  const auto found = std::ranges::find_if(rows_, [&](const Mapping& row) {
    return bytes > 0 && row.memory.address() == address && row.memory.size_bytes() == bytes;
  });
  if (found == rows_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - rows_.begin());
}

// For mappings of this side, whose offsets are at most INT64_MAX: the sums do not overflow.
bool Maps::overlaps(std::uint64_t offset, std::uint64_t bytes) const {
  return std::ranges::any_of(rows_, [&](const Mapping& row) {
    return row.memory.size_bytes() > 0 && offset < row.offset + row.memory.size_bytes() &&
           row.offset < offset + bytes;
  });
}

std::uint64_t Maps::next_offset() const {
  std::uint64_t next = 0;
  for (const Mapping& row : rows_) {
    if (row.memory.size_bytes() > 0) next = std::max(next, row.offset + row.memory.size_bytes());
  }
  return next;
}

// The peer chooses these offsets and lengths freely, so the comparison must not overflow.
std::optional<verbs::RemoteSlice> Maps::at(std::uint64_t offset, std::uint64_t bytes) const {
  for (const Mapping& row : rows_) {
    const std::uint64_t size = row.memory.size_bytes();
    if (offset >= row.offset && offset - row.offset < size &&
        bytes <= size - (offset - row.offset)) {
      return row.memory.slice(offset - row.offset, bytes);
    }
  }
  return std::nullopt;
}

}  // namespace weft::stream::detail
