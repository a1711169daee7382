// Collects durations, in nanoseconds or any other unit, and computes their percentiles in a fixed
// amount of memory. The width of a bucket grows with the value, so that each percentile has an
// error of at most 1.6 %. It allocates nothing before the first value.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/export.hpp"

namespace weft::capture {

class WEFT_API Histogram {
 public:
  // Adds one value. A negative value counts as 0.
  void add(std::int64_t value);
  // Returns the number of values.
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // Returns the smallest value, which is exact; 0 if there are no values.
  [[nodiscard]] std::int64_t min() const { return min_; }
  // Returns the largest value, which is exact; 0 if there are no values.
  [[nodiscard]] std::int64_t max() const { return max_; }
  // Returns the mean of all values, rounded to an integer; 0 if there are no values.
  [[nodiscard]] std::int64_t mean() const;
  // Returns the smallest value that `percent` of all values do not exceed; 0 if there are no
  // values.
  [[nodiscard]] std::int64_t percentile(double percent) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::int64_t min_ = 0;
  std::int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace weft::capture
