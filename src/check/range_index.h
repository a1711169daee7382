// Ranges of bytes, each with a number, and which of them overlap a given one.
#pragma once

#include <algorithm>
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
    if (range.bytes != 0) by_size_[size_of(range)][{range.first, number}] = range.bytes;
  }
  // False if it is not there.
  bool remove(const MemoryRange& range, std::uint64_t number) {
    const auto ranges = by_size_.find(size_of(range));
    if (ranges == by_size_.end() || ranges->second.erase({range.first, number}) == 0) return false;
    if (ranges->second.empty()) by_size_.erase(ranges);
    return true;
  }
  void clear() { by_size_.clear(); }
  [[nodiscard]] bool empty() const { return by_size_.empty(); }
  // Calls `ends` with the number and the range of each one that overlaps, until it returns true.
  // Returns whether it did.
  template <typename Ends>
  bool find_overlapping(const MemoryRange& range, Ends ends) const {
    if (range.bytes == 0) return false;
    for (const auto& [size, ranges] : by_size_) {
      const std::uint64_t longest = ~std::uint64_t{0} >> (64 - size);
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

  static int size_of(const MemoryRange& range) {
    return static_cast<int>(std::bit_width(range.bytes));
  }

  // By the count of bits that a size has: ranges of one element differ in size by less than a
  // factor of two, so that a search meets few that end before what it looks for.
  std::map<int, Ranges> by_size_;
};

}  // namespace weft::check
