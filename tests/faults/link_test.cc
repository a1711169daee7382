// The list that describes a slower network, and when a link delivers what it carries.
#include "faults/link.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::faults {
namespace {

constexpr std::uint64_t now_ns = 1'000'000'000'000;

std::string error_of(std::string_view text) {
  const auto link = parse_link(text);
  return link.ok() ? "no error" : link.error();
}

TEST(Link, IsNoneByDefault) {
  EXPECT_FALSE(Link{}.active());
}

TEST(Link, ReadsEachName) {
  const auto link = parse_link("latency=50us, jitter=5us,rate=10gbit,loss-stall=0.1% ,seed=9");
  ASSERT_TRUE(link.ok()) << link.error();
  EXPECT_EQ(link->latency_ns, 50'000U);
  EXPECT_EQ(link->jitter_ns, 5'000U);
  EXPECT_EQ(link->bits_per_second, 10'000'000'000U);
  EXPECT_DOUBLE_EQ(link->loss, 0.001);
  EXPECT_EQ(link->seed, 9U);
  EXPECT_TRUE(link->active());
}

TEST(Link, ReadsTheLimits) {
  EXPECT_EQ(parse_link("latency=60s")->latency_ns, 60'000'000'000U);
  EXPECT_EQ(parse_link("rate=1kbit")->bits_per_second, 1'000U);
  EXPECT_EQ(parse_link("rate=3mbit")->bits_per_second, 3'000'000U);
  EXPECT_DOUBLE_EQ(parse_link("loss-stall=50%")->loss, 0.5);
  EXPECT_DOUBLE_EQ(parse_link("loss-stall=0.02")->loss, 0.02);
  EXPECT_FALSE(parse_link("latency=0us")->active());
}

TEST(Link, PointsAtMistakes) {
  EXPECT_EQ(error_of("latency=50us,jitter=much"),
            "jitter= must be a duration in ns, us, ms or s, at most 60s\n"
            "  latency=50us,jitter=much\n"
            "                      ^");
  EXPECT_EQ(error_of("delay=5us"),
            "must be one of latency=, jitter=, rate=, loss-stall=, seed=\n"
            "  delay=5us\n"
            "  ^");
  EXPECT_TRUE(error_of("latency=50").starts_with("latency= must be"));
  EXPECT_TRUE(error_of("latency=61s").starts_with("latency= must be"));
  EXPECT_TRUE(error_of("latency=-1us").starts_with("latency= must be"));
  EXPECT_TRUE(error_of("latency=1us,latency=2us").starts_with("latency= occurs twice"));
  EXPECT_TRUE(error_of("rate=10").starts_with("rate= must be"));
  EXPECT_TRUE(error_of("rate=0gbit").starts_with("rate= must be"));
  EXPECT_TRUE(error_of("rate=1000001gbit").starts_with("rate= must be"));
  EXPECT_TRUE(error_of("loss-stall=51%").starts_with("loss-stall= must be"));
  EXPECT_TRUE(error_of("loss-stall=-1%").starts_with("loss-stall= must be"));
  EXPECT_TRUE(error_of("loss-stall=nan").starts_with("loss-stall= must be"));
  EXPECT_TRUE(error_of("loss-stall=").starts_with("loss-stall= must be"));
  EXPECT_TRUE(error_of("seed=x").starts_with("seed= must be"));
  EXPECT_TRUE(error_of("").starts_with("must be NAME=VALUE"));
}

TEST(LinkSchedule, AddsTheLatency) {
  LinkSchedule schedule({.latency_ns = 700}, 1);
  EXPECT_EQ(schedule.stream_due_ns(now_ns, 100), now_ns + 700);
  EXPECT_EQ(schedule.stream_due_ns(now_ns + 5, 100), now_ns + 705);
  EXPECT_EQ(schedule.lost(), 0U);
}

TEST(LinkSchedule, CarriesOneThingAfterTheOther) {
  // 1000 bytes take 8 us.
  LinkSchedule schedule({.latency_ns = 700, .bits_per_second = 1'000'000'000}, 1);
  EXPECT_EQ(schedule.packet_due_ns(now_ns, 1000), now_ns + 8'700);
  EXPECT_EQ(schedule.packet_due_ns(now_ns, 1000), now_ns + 16'700);
  // The link has been idle.
  EXPECT_EQ(schedule.packet_due_ns(now_ns + 100'000, 1000), now_ns + 108'700);
}

TEST(LinkSchedule, KeepsTheOrderUnderJitter) {
  LinkSchedule schedule({.latency_ns = 1'000, .jitter_ns = 100'000}, 7);
  std::uint64_t last_ns = 0;
  bool varies = false;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t sent_ns = now_ns + i * 10'000;
    const std::uint64_t due_ns = schedule.stream_due_ns(sent_ns, 1448);
    EXPECT_GE(due_ns, sent_ns + 1'000);
    EXPECT_GE(due_ns, last_ns);
    varies = varies || due_ns != last_ns + 10'000;
    last_ns = due_ns;
  }
  EXPECT_TRUE(varies);
}

TEST(LinkSchedule, StallsAStreamAndLosesPackets) {
  LinkSchedule stream({.latency_ns = 1'000, .loss = 0.1}, 3);
  std::uint64_t last_ns = now_ns;
  std::uint64_t stalls = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t due_ns = stream.stream_due_ns(now_ns, 1448);
    // The shortest retransmission timeout of Linux.
    if (due_ns >= last_ns + 200'000'000) ++stalls;
    last_ns = due_ns;
  }
  EXPECT_EQ(stalls, stream.lost());
  EXPECT_NEAR(static_cast<double>(stalls), 100, 50);

  LinkSchedule packets({.loss = 0.1}, 3);
  std::uint64_t missing = 0;
  for (int i = 0; i < 1000; ++i) missing += packets.packet_due_ns(now_ns, 100) ? 0 : 1;
  EXPECT_EQ(missing, packets.lost());
  EXPECT_NEAR(static_cast<double>(missing), 100, 50);
}

// The division into calls depends on threads, and must not change what a seed means.
TEST(LinkSchedule, DoesNotDependOnTheDivisionIntoCalls) {
  const Link link{.latency_ns = 1'000, .jitter_ns = 500, .loss = 0.05};
  constexpr std::size_t all = 200 * 1448;
  for (const std::size_t step : {1UL, 1000UL, 1448UL, 5000UL, all}) {
    LinkSchedule schedule(link, 42);
    LinkSchedule whole(link, 42);
    std::uint64_t due_ns = 0;
    for (std::size_t at = 0; at < all; at += step) {
      due_ns = schedule.stream_due_ns(now_ns, std::min(step, all - at));
    }
    (void)whole.stream_due_ns(now_ns, all);
    EXPECT_EQ(schedule.lost(), whole.lost()) << step;
    EXPECT_GE(due_ns, now_ns + schedule.lost() * 200'000'000) << step;
  }
}

}  // namespace
}  // namespace weft::faults
