// A set of disjoint ranges of offsets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace weft::capture {

class RangeSet {
 public:
  // Begin, and the first offset after the range.
  using Range = std::pair<std::uint64_t, std::uint64_t>;

  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
      next = std::prev(next);
      begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace(begin, end);
  }
  void cut_to(std::uint64_t end) {
    const auto kept = within(0, end);
    ranges_.clear();
    ranges_.insert(kept.begin(), kept.end());
  }
  // Returns the parts of [begin, end) that are in the set.
  [[nodiscard]] std::vector<Range> within(std::uint64_t begin, std::uint64_t end) const {
    std::vector<Range> found;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin()) next = std::prev(next);
    for (; next != ranges_.end() && next->first < end; ++next) {
      const Range part{std::max(begin, next->first), std::min(end, next->second)};
      if (part.first < part.second) found.push_back(part);
    }
    return found;
  }
  // Returns the parts of [begin, end) that are not in the set.
  [[nodiscard]] std::vector<Range> missing(std::uint64_t begin, std::uint64_t end) const {
    std::vector<Range> gaps;
    for (const Range& part : within(begin, end)) {
      if (begin < part.first) gaps.emplace_back(begin, part.first);
      begin = part.second;
    }
    if (begin < end) gaps.emplace_back(begin, end);
    return gaps;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

}  // namespace weft::capture
