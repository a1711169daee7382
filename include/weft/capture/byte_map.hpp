// Stores the bytes of one range that arrive in pieces: in any order, repeatedly, with holes, or
// with contradicting contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "weft/bytes.hpp"
#include "weft/capture/assembled.hpp"
#include "weft/capture/budget.hpp"
#include "weft/export.hpp"

namespace weft::capture {

class WEFT_API ByteMap {
 public:
  struct Placed {
    std::uint64_t added = 0;
    std::uint64_t repeated = 0;     // already stored, with the same value
    std::uint64_t conflicting = 0;  // already stored, with another value
    std::uint64_t dropped = 0;      // not stored, because the budget is used up
  };

  // `budget` must outlive the map.
  explicit ByteMap(Budget& budget) : budget_(&budget) {}
  ~ByteMap() { clear(); }
  ByteMap(const ByteMap&) = delete;
  ByteMap& operator=(const ByteMap&) = delete;

  // Copies `bytes` to `offset`. New bytes overwrite bytes that are already stored.
  Placed place(std::uint64_t offset, Bytes bytes);
  // Notes that the range was on the wire, but its bytes were not captured. Bytes that are placed
  // there later repair it.
  void place_cut(std::uint64_t offset, std::uint64_t size) { note(offset, size, Flaw::cut); }

  // Returns how many of the bytes in [0, size) are stored.
  [[nodiscard]] std::uint64_t present(std::uint64_t size) const;
  // Returns whether all bytes in [0, size) are stored.
  [[nodiscard]] bool complete(std::uint64_t size) const { return present(size) == size; }
  // Returns the offset after the last stored byte; 0 if no byte is stored.
  [[nodiscard]] std::uint64_t end() const;
  // Returns the offset after the last byte that was on the wire, stored or not; 0 if there was
  // none.
  [[nodiscard]] std::uint64_t reached() const;
  // Returns a copy of [begin, end), in which holes are zeros and flaws.
  [[nodiscard]] Assembled take(std::uint64_t begin, std::uint64_t end) const;
  // Removes all bytes and flaws, and returns the bytes to the budget.
  void clear();

 private:
  using Extents = std::map<std::uint64_t, std::vector<std::byte>>;

  void note(std::uint64_t offset, std::uint64_t size, Flaw flaw);
  void overwrite(std::vector<std::byte>& extent, std::uint64_t begin, std::uint64_t offset,
                 Bytes bytes, Placed& placed);
  void add(std::uint64_t offset, Bytes bytes, Placed& placed);
  void append_gap(Assembled& out, std::uint64_t begin, std::uint64_t end) const;

  Budget* budget_;
  Extents extents_;  // disjoint; adjacent pieces are merged into one extent
  // Ranges without a byte, or with two different ones, and the reason. They may overlap. note()
  // bounds their number.
  std::vector<FlawedRange> notes_;
};

}  // namespace weft::capture
