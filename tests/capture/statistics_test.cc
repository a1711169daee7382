// What is counted of a connection over time.
#include "weft/capture/statistics.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::capture::test {
namespace {

struct StatisticsTest : testing::Test {
  Statistics statistics;
  std::vector<std::byte> bytes = std::vector<std::byte>(1'000);

  static Origin at(Side side, std::int64_t time_ns) {
    return {.side = side, .stamp = {1, time_ns}};
  }
  void send(Side side, std::int64_t time_ns) {
    statistics.on_send(at(side, time_ns), {.bytes = bytes});
  }
  [[nodiscard]] const SideStatistics& of(Side side) const { return statistics.of(0).of(side); }
};

TEST_F(StatisticsTest, ThroughputOverTime) {
  for (std::int64_t i = 0; i < 100; ++i) send(Side::a, 5'000'000 + i * 1'000'000);
  send(Side::b, 5'000'000);
  EXPECT_EQ(statistics.of(0).carried_from_ns, 5'000'000);
  const auto& carried = of(Side::a).carried;
  EXPECT_GT(carried.size(), 25U);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < carried.size(); ++i) sum += carried[i];
  EXPECT_EQ(sum, 100'000U);
  EXPECT_EQ(of(Side::b).carried[0], 1'000U);
}

// A mark is on a packet of the side that should slow down, a notification comes from the other one.
TEST_F(StatisticsTest, CongestionOverTimeCountsForTheSender) {
  send(Side::a, 5'000'000);
  EXPECT_FALSE(of(Side::a).congestion);
  statistics.on_congestion(at(Side::a, 5'000'500), Congestion::marked);
  statistics.on_congestion(at(Side::b, 5'001'500), Congestion::notified);
  statistics.on_congestion(at(Side::b, 5'001'600), Congestion::notified);
  ASSERT_TRUE(of(Side::a).congestion);
  EXPECT_EQ((*of(Side::a).congestion)[0], 1U);
  EXPECT_EQ((*of(Side::a).congestion)[1], 2U);
  EXPECT_FALSE(of(Side::b).congestion);
  EXPECT_EQ(of(Side::a).congestion_marked, 1U);
  EXPECT_EQ(of(Side::b).congestion_notified, 2U);
}

TEST_F(StatisticsTest, RepeatingCostsTimeFromTheLastPacketWithSomethingNew) {
  send(Side::a, 1'000);
  statistics.on_repeat(at(Side::a, 4'000), 100);
  statistics.on_repeat(at(Side::a, 9'000), 100);
  send(Side::a, 20'000);
  statistics.on_repeat(at(Side::a, 21'000), 100);
  statistics.on_repeat(at(Side::b, 50'000), 100);
  EXPECT_EQ(of(Side::a).repeating.lost_ns(), 8'000U + 1'000U);
  EXPECT_EQ(of(Side::b).repeating.lost_ns(), 0U) << "nothing is known of what it had sent before";
}

TEST_F(StatisticsTest, ARequestIsSomethingNewOnceOnly) {
  statistics.on_read_request(at(Side::a, 1'000), {.length = 10});
  statistics.on_repeat(at(Side::a, 3'000), 0);
  statistics.on_read_request(at(Side::a, 3'000), {.length = 10, .repeated = true});
  statistics.on_repeat(at(Side::a, 6'000), 0);
  EXPECT_EQ(of(Side::a).repeating.lost_ns(), 5'000U);
}

}  // namespace
}  // namespace weft::capture::test
