// A set of frame numbers in a bounded number of ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace weft::capture {

class FrameRanges {
 public:
  // Beyond this number, ranges that are near each other are joined, so that the set has frames in
  // addition to those that were added, but never fewer.
  static constexpr std::size_t max_ranges = 4096;

  // Adds the frames from `first` to `last`, both included.
  void add(std::uint64_t first, std::uint64_t last);
  [[nodiscard]] bool contains(std::uint64_t frame) const;
  [[nodiscard]] std::size_t size() const { return ranges_.size(); }

 private:
  void join_near();

  std::map<std::uint64_t, std::uint64_t> ranges_;  // first to last; at least distance_ apart
  std::uint64_t distance_ = 1;                     // ranges whose distance is not larger are joined
};

}  // namespace weft::capture
