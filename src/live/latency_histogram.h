// A histogram of latencies with buckets of equal relative width.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace weft::live {

// Sixteen buckets for each power of two, so that a bucket is at most 1/16 wider than its lower
// limit: a percentile is read with an error of 6 %. Not thread-safe.
class LatencyHistogram {
 public:
  static constexpr int precision_bits = 4;
  // Up to 2^40 ns, which is 18 minutes; longer ones count as this.
  static constexpr int most_bits = 40;
  static constexpr std::size_t buckets = std::size_t{most_bits - precision_bits + 1}
                                         << precision_bits;

  // Values below 16 have a bucket each.
  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t ns) {
    constexpr std::uint64_t most = (std::uint64_t{1} << most_bits) - 1;
    ns = std::min(ns, most);
    const auto bits = static_cast<int>(std::bit_width(ns));
    if (bits <= precision_bits) return ns;
    const int shift = bits - precision_bits - 1;
    return (static_cast<std::size_t>(shift) << precision_bits) + (ns >> shift);
  }
  // The smallest value of a bucket.
  [[nodiscard]] static constexpr std::uint64_t lower_ns(std::size_t bucket) {
    constexpr std::size_t sixteen = std::size_t{1} << precision_bits;
    if (bucket < sixteen) return bucket;
    const std::size_t shift = (bucket >> precision_bits) - 1;
    return (sixteen + bucket % sixteen) << shift;
  }

  void add(std::uint64_t ns) { ++counts_[bucket_of(ns)]; }
  // Adds `count` values to a bucket; does nothing for one that does not exist.
  void add_bucket(std::size_t bucket, std::uint64_t count) {
    if (bucket < buckets) counts_[bucket] += count;
  }
  void add(const LatencyHistogram& other) {
    for (std::size_t i = 0; i < buckets; ++i) counts_[i] += other.counts_[i];
  }
  // Takes out what was counted before. A bucket that has fewer than before becomes empty.
  void subtract(const LatencyHistogram& before) {
    for (std::size_t i = 0; i < buckets; ++i) counts_[i] -= std::min(counts_[i], before.counts_[i]);
  }

  [[nodiscard]] const std::array<std::uint64_t, buckets>& counts() const { return counts_; }
  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t each : counts_) sum += each;
    return sum;
  }
  // The value that this share (0 to 1) of all values does not exceed: the middle of its bucket. 0
  // where there are no values.
  [[nodiscard]] std::uint64_t percentile_ns(double share) const {
    const std::uint64_t all = count();
    if (all == 0) return 0;
    // Rounded up: of two values, the larger one is the 99th percentile.
    const auto exact = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all)));
    const std::uint64_t wanted = std::clamp<std::uint64_t>(exact, 1, all);
    std::uint64_t seen = 0;
    std::size_t bucket = 0;
    for (; bucket + 1 < buckets; ++bucket) {
      seen += counts_[bucket];
      if (seen >= wanted) break;
    }
    return (lower_ns(bucket) + lower_ns(bucket + 1)) / 2;
  }

 private:
  std::array<std::uint64_t, buckets> counts_{};
};

}  // namespace weft::live
