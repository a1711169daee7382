#include "live/latency_histogram.h"

#include <gtest/gtest.h>

namespace weft::live {
namespace {

using Histogram = LatencyHistogram;

TEST(LatencyHistogram, BucketsFollowEachOtherWithoutGaps) {
  for (std::size_t bucket = 0; bucket < Histogram::buckets; ++bucket) {
    const std::uint64_t lower = Histogram::lower_ns(bucket);
    EXPECT_EQ(Histogram::bucket_of(lower), bucket);
    if (bucket == 0) continue;
    EXPECT_EQ(Histogram::bucket_of(lower - 1), bucket - 1);
  }
}

TEST(LatencyHistogram, ABucketIsAtMostOneSixteenthWide) {
  for (std::size_t bucket = 16; bucket + 1 < Histogram::buckets; ++bucket) {
    const std::uint64_t lower = Histogram::lower_ns(bucket);
    EXPECT_LE((Histogram::lower_ns(bucket + 1) - lower) * 16, lower);
  }
}

TEST(LatencyHistogram, LongTimesCountAsTheLongest) {
  EXPECT_EQ(Histogram::bucket_of(UINT64_MAX), Histogram::buckets - 1);
  Histogram histogram;
  histogram.add(UINT64_MAX);
  EXPECT_EQ(histogram.count(), 1U);
}

TEST(LatencyHistogram, PercentilesAreWithinTheirBucket) {
  Histogram histogram;
  for (std::uint64_t i = 1; i <= 1000; ++i) histogram.add(i * 1000);
  for (const auto& [share, exact] : {std::pair{0.5, 500'000.0}, {0.99, 990'000.0}}) {
    EXPECT_NEAR(static_cast<double>(histogram.percentile_ns(share)), exact, exact / 16);
  }
  EXPECT_EQ(Histogram().percentile_ns(0.5), 0U);
}

TEST(LatencyHistogram, OneOutlierIsInTheTailOnly) {
  Histogram histogram;
  for (int i = 0; i < 999; ++i) histogram.add(10'000);
  histogram.add(1'000'000'000);
  EXPECT_LT(histogram.percentile_ns(0.99), 11'000U);
  EXPECT_GT(histogram.percentile_ns(1), 900'000'000U);
}

// 99 % of fewer than 100 values are all of them.
TEST(LatencyHistogram, AFewValuesHaveTheLargestAsTheirTail) {
  Histogram two;
  two.add(1'000);
  two.add(1'000'000'000);
  EXPECT_LT(two.percentile_ns(0.5), 2'000U);
  EXPECT_GT(two.percentile_ns(0.99), 900'000'000U);
  Histogram fifty;
  for (int i = 0; i < 49; ++i) fifty.add(1'000);
  fifty.add(1'000'000'000);
  EXPECT_GT(fifty.percentile_ns(0.99), 900'000'000U);
  EXPECT_GT(fifty.percentile_ns(1.5), 900'000'000U) << "no more than all";
}

TEST(LatencyHistogram, ADifferenceHasWhatCameLast) {
  Histogram before;
  before.add(100);
  Histogram now = before;
  now.add(5000);
  now.add(5000);
  now.subtract(before);
  EXPECT_EQ(now.count(), 2U);
  EXPECT_NEAR(static_cast<double>(now.percentile_ns(0.01)), 5000, 5000.0 / 16);
  now.subtract(before);
  EXPECT_EQ(now.count(), 2U) << "below zero";
}

TEST(LatencyHistogram, ABucketThatDoesNotExistIsLeftOut) {
  Histogram histogram;
  histogram.add_bucket(Histogram::buckets, 7);
  histogram.add_bucket(3, 7);
  EXPECT_EQ(histogram.count(), 7U);
}

}  // namespace
}  // namespace weft::live
