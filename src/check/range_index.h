// Ranges of bytes, each with a number, and which of them overlap a given one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <utility>

#include "check/memory_range.h"

namespace weft::check {

// Ranges may overlap and be equal; each pair of range and number is there once. A search takes
// logarithmic time, and time for what it finds. Not thread-safe.
class RangeIndex {
 public:
  // A range without bytes is left out.
  void add(const MemoryRange& range, std::uint64_t number) {
    if (range.bytes != 0) of(range)[{range.first, number}] = range.bytes;
  }
  // False if it is not there.
  bool remove(const MemoryRange& range, std::uint64_t number) {
    return range.bytes != 0 && of(range).erase({range.first, number}) != 0;
  }
  void clear() { by_size_ = {}; }
  // Calls `ends` with the number and the range of each one that overlaps, until it returns true.
  // Returns whether it did.
  template <typename Ends>
  bool find_overlapping(const MemoryRange& range, Ends ends) const {
    for (std::size_t size = 0; size < by_size_.size(); ++size) {
      const Ranges& ranges = by_size_[size];
      if (ranges.empty() || range.bytes == 0) continue;
      // Each is shorter than this power of two.
      const std::uint64_t longest = size < 64 ? (std::uint64_t{1} << size) - 1 : ~std::uint64_t{0};
      const std::uint64_t from = range.first - std::min(range.first, longest);
      for (auto at = ranges.lower_bound({from, 0}); at != ranges.end(); ++at) {
        const MemoryRange found{at->first.first, at->second};
        if (found.first >= range.first + range.bytes) break;
        if (found.overlaps(range) && ends(at->first.second, found)) return true;
      }
    }
    return false;
  }

 private:
  // From the first byte and the number to the count of bytes.
  using Ranges = std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>;

  Ranges& of(const MemoryRange& range) {
    return by_size_[static_cast<std::size_t>(std::bit_width(range.bytes))];
  }

  // Ranges of one element differ in size by less than a factor of two, so that a search meets few
  // that end before what it looks for.
  std::array<Ranges, 65> by_size_;
};

}  // namespace weft::check
