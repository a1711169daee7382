// How much peers have read and written, by their own count, in memory that both map.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::device {

// Zero in the beginning, as new memory is. The peers write here, so the values are not trusted.
struct AccessTotals {
  struct Count {
    std::atomic<std::uint64_t> operations{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  Count writes;
  Count reads;
  Count atomics;
};

}  // namespace weft::device
