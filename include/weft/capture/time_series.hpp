// An amount over time in a fixed number of buckets, which become wider as time goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::capture {

template <std::size_t Buckets>
class TimeSeriesOf {
 public:
  static constexpr std::size_t max_buckets = Buckets;

  // Adds an amount. `time_ns` counts from the beginning of the series; earlier times count as the
  // beginning.
  void add(std::int64_t time_ns, std::uint64_t amount) {
    const std::uint64_t time = time_ns < 0 ? 0 : static_cast<std::uint64_t>(time_ns);
    while (time / width_ns_ >= max_buckets) widen();
    const auto bucket = static_cast<std::size_t>(time / width_ns_);
    amounts_[bucket] += amount;
    if (bucket >= size_) size_ = bucket + 1;
  }
  // Doubles the width of the buckets until it is at least `width_ns`. The amounts of buckets that
  // become one are added.
  void widen_to(std::uint64_t width_ns) {
    while (width_ns_ < width_ns) widen();
  }
  // The width of a bucket: a power of two times 1024 ns.
  [[nodiscard]] std::uint64_t width_ns() const { return width_ns_; }
  // Returns the number of buckets up to the last one in use; 0 if nothing was added.
  [[nodiscard]] std::size_t size() const { return size_; }
  // Returns the amount in a bucket; 0 from size() on. `bucket` must be less than max_buckets.
  [[nodiscard]] std::uint64_t operator[](std::size_t bucket) const { return amounts_[bucket]; }

 private:
  void widen() {
    for (std::size_t i = 0; i < max_buckets / 2; ++i) {
      amounts_[i] = amounts_[2 * i] + amounts_[2 * i + 1];
    }
    for (std::size_t i = max_buckets / 2; i < max_buckets; ++i) amounts_[i] = 0;
    width_ns_ *= 2;
    size_ = (size_ + 1) / 2;
  }

  std::array<std::uint64_t, max_buckets> amounts_{};
  std::size_t size_ = 0;  // buckets up to the last one in use
  std::uint64_t width_ns_ = 1024;
};

using TimeSeries = TimeSeriesOf<256>;

}  // namespace weft::capture
