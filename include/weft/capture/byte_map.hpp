// Bytes of a known range that arrive in pieces: in any order, twice, with holes, contradicting one
// another.
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
    std::uint64_t repeated = 0;     // there already, and the same
    std::uint64_t conflicting = 0;  // there already, and different
    std::uint64_t dropped = 0;      // no memory for them
  };

  // `budget` must outlive the map.
  explicit ByteMap(Budget& budget) : budget_(&budget) {}
  ~ByteMap() { clear(); }
  ByteMap(const ByteMap&) = delete;
  ByteMap& operator=(const ByteMap&) = delete;

  // Copies them. Where bytes were there already the new ones count.
  Placed place(std::uint64_t offset, Bytes bytes);
  // The range was carried, but its bytes are not there. What is placed there later heals it.
  void place_cut(std::uint64_t offset, std::uint64_t size) { note(offset, size, Flaw::cut); }

  // How many of the bytes in [0, size) are there.
  [[nodiscard]] std::uint64_t present(std::uint64_t size) const;
  [[nodiscard]] bool complete(std::uint64_t size) const { return present(size) == size; }
  [[nodiscard]] bool empty() const { return extents_.empty(); }
  // The first byte behind the last one that was placed.
  [[nodiscard]] std::uint64_t end() const;
  // A copy of [begin, end), in which holes are zeros and flaws.
  [[nodiscard]] Assembled take(std::uint64_t begin, std::uint64_t end) const;
  void clear();

 private:
  using Extents = std::map<std::uint64_t, std::vector<std::byte>>;

  void note(std::uint64_t offset, std::uint64_t size, Flaw flaw);
  void overwrite(std::vector<std::byte>& extent, std::uint64_t begin, std::uint64_t offset,
                 Bytes bytes, Placed& placed);
  void add(std::uint64_t offset, Bytes bytes, Placed& placed);
  void append_gap(Assembled& out, std::uint64_t begin, std::uint64_t end) const;

  Budget* budget_;
  Extents extents_;  // disjoint; pieces that follow one another grow one extent
  // Why there is no byte, or two. Overlaps are possible and harmless. Bounded: see note().
  std::vector<FlawedRange> notes_;
};

}  // namespace weft::capture
