#include "weft/capture/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft::capture {
namespace {

// Each power of two is divided into this many buckets (as a power of two).
constexpr unsigned sub_bits = 5;
constexpr std::uint64_t sub_buckets = 1ULL << sub_bits;

// Returns the bucket of a value. Small values have a bucket each. Above them the quotient is
// between sub_buckets and 2 * sub_buckets - 1, so a bucket is never wider than 1/32 of its values,
// and the buckets of one shift directly follow those of the shift before.
std::size_t bucket_of(std::uint64_t value) {
  if (value < 2 * sub_buckets) return static_cast<std::size_t>(value);
  const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - sub_bits - 1;
  return static_cast<std::size_t>(shift * sub_buckets + (value >> shift));
}

// Returns the middle of a bucket.
std::uint64_t value_of(std::size_t bucket) {
  if (bucket < 2 * sub_buckets) return bucket;
  const std::uint64_t shift = bucket / sub_buckets - 1;
  const std::uint64_t low = (bucket - shift * sub_buckets) << shift;
  return low + ((1ULL << shift) - 1) / 2;
}

}  // namespace

void Histogram::add(std::int64_t value) {
  // A negative value counts as 0, because the buckets begin there.
  value = std::max<std::int64_t>(value, 0);
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
  // A sum in floating point cannot overflow; it loses digits that the mean does not show.
  sum_ += static_cast<double>(value);
  const std::size_t bucket = bucket_of(static_cast<std::uint64_t>(value));
  // The largest value decides about the memory: 32 buckets for each power of two below it.
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
}

std::int64_t Histogram::mean() const {
  return count_ == 0 ? 0
                     : static_cast<std::int64_t>(std::llround(sum_ / static_cast<double>(count_)));
}

// The result is limited to the smallest and largest value, because the middle of a bucket may lie
// outside. The rank is that of the nearest-rank method: the smallest value that at least `percent`
// of all values do not exceed.
std::int64_t Histogram::percentile(double percent) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(
      std::max(1.0, std::ceil(percent / 100.0 * static_cast<double>(count_))));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen >= rank) {
      return std::clamp(static_cast<std::int64_t>(value_of(bucket)), min_, max_);
    }
  }
  return max_;
}

}  // namespace weft::capture
