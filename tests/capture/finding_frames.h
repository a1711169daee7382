// The frames of a finding, without their times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "weft/capture/finding.hpp"

namespace weft::capture::test {

inline std::vector<std::uint64_t> frames_of(const Finding& finding) {
  std::vector<std::uint64_t> frames;
  std::ranges::transform(finding.stamps, std::back_inserter(frames), &Stamp::frame);
  return frames;
}

}  // namespace weft::capture::test
