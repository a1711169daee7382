#include "capture/report/frame_ranges.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weft::capture {

void FrameRanges::add(std::uint64_t first, std::uint64_t last) {
  if (last < first) std::swap(first, last);
  auto at = ranges_.upper_bound(first);
  if (at != ranges_.begin() && std::prev(at)->second + distance_ >= first) --at;
  // Each range that the new one reaches becomes a part of it.
  while (at != ranges_.end() && at->first <= last + distance_) {
    first = std::min(first, at->first);
    last = std::max(last, at->second);
    at = ranges_.erase(at);
  }
  ranges_.emplace(first, last);
  while (ranges_.size() > max_ranges) join_near();
}

void FrameRanges::join_near() {
  distance_ *= 2;
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    const auto next = std::next(at);
    if (next != ranges_.end() && next->first <= at->second + distance_) {
      at->second = next->second;
      ranges_.erase(next);
    } else {
      at = next;
    }
  }
}

bool FrameRanges::contains(std::uint64_t frame) const {
  const auto after = ranges_.upper_bound(frame);
  return after != ranges_.begin() && std::prev(after)->second >= frame;
}

}  // namespace weft::capture
