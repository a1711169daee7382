// When the rules apply.
#include "faults/plan.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "faults/rules.h"

namespace weft::faults {
namespace {

Rules rules_of(std::string_view text) {
  auto rules = parse(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error());
  return rules.ok() ? *rules : Rules{};
}

class PlanTest : public testing::Test {
 protected:
  static constexpr std::uint64_t opened_ns = 5'000'000'000;

  // The numbers of the occurrences, from 1, at which something happens.
  static std::vector<int> faults(Plan& plan, Point point, int occurrences,
                                 const Occurrence& each = {.now_ns = opened_ns}) {
    std::vector<int> numbers;
    for (int i = 1; i <= occurrences; ++i) {
      if (plan.at(point, each)) numbers.push_back(i);
    }
    return numbers;
  }
};

using Numbers = std::vector<int>;

TEST_F(PlanTest, ChoosesByNumber) {
  Plan plan(rules_of("EIO at reg-mr nth=3; EIO at create-cq every=4; EIO at alloc-pd times=2"), 1,
            opened_ns, "", false);
  EXPECT_EQ(faults(plan, Point::register_memory, 9), (Numbers{3}));
  EXPECT_EQ(faults(plan, Point::create_completion_queue, 9), (Numbers{4, 8}));
  EXPECT_EQ(faults(plan, Point::allocate_domain, 9), (Numbers{1, 2}));
  EXPECT_EQ(faults(plan, Point::create_queue_pair, 9), Numbers{});
  EXPECT_FALSE(plan.names(Point::create_queue_pair));
}

TEST_F(PlanTest, DescribesEachFault) {
  Plan plan(rules_of("EIO at reg-mr nth=3"), 1, opened_ns, "", false);
  std::vector<std::string> described;
  plan.describe_to([&](const std::string& fault) { described.push_back(fault); });
  (void)faults(plan, Point::register_memory, 9);
  EXPECT_EQ(described, (std::vector<std::string>{
                           "fault 1 of the rule \"EIO at reg-mr nth=3\" after 3 of its kind"}));
}

TEST_F(PlanTest, RepeatsItselfWithTheSameSeed) {
  const auto run = [](std::uint64_t seed, const char* text) {
    Plan plan(rules_of(text), seed, opened_ns, "", false);
    return faults(plan, Point::write, 1000);
  };
  const char* rule = "FATAL_ERR at write p=0.1";
  EXPECT_EQ(run(7, rule), run(7, rule));
  EXPECT_NE(run(7, rule), run(8, rule));
  EXPECT_EQ(run(7, "FATAL_ERR at write p=0.1; seed=8"), run(8, rule));
  EXPECT_NEAR(static_cast<double>(run(7, rule).size()), 100, 50);
}

// A rule that is added behind others does not change what they choose.
TEST_F(PlanTest, RulesChooseIndependently) {
  Plan alone(rules_of("FATAL_ERR at write p=0.1"), 7, opened_ns, "", false);
  Plan both(rules_of("FATAL_ERR at write p=0.1; FATAL_ERR at read p=0.5"), 7, opened_ns, "", false);
  Numbers of_both;
  for (int i = 1; i <= 500; ++i) {
    if (both.at(Point::write, {.now_ns = opened_ns})) of_both.push_back(i);
    (void)both.at(Point::read, {.now_ns = opened_ns});
  }
  EXPECT_EQ(faults(alone, Point::write, 500), of_both);
}

TEST_F(PlanTest, RequestStandsForEachOperation) {
  Plan plan(rules_of("FATAL_ERR at request nth=3"), 1, opened_ns, "", false);
  EXPECT_TRUE(plan.names(Point::send));
  EXPECT_FALSE(plan.at(Point::send, {.now_ns = opened_ns}));
  EXPECT_FALSE(plan.at(Point::receive, {.now_ns = opened_ns}));
  EXPECT_FALSE(plan.at(Point::atomic, {.now_ns = opened_ns}));
  EXPECT_TRUE(plan.at(Point::read, {.now_ns = opened_ns}));
}

TEST_F(PlanTest, WaitsForTimeAndBytes) {
  Plan plan(rules_of("FATAL_ERR at send after=2s; FATAL_ERR at write after=1KiB"), 1, opened_ns, "",
            false);
  EXPECT_FALSE(plan.at(Point::send, {.now_ns = opened_ns + 1'999'999'999}));
  EXPECT_TRUE(plan.at(Point::send, {.now_ns = opened_ns + 2'000'000'000}));
  EXPECT_EQ(faults(plan, Point::write, 5, {.now_ns = opened_ns, .bytes = 400}), (Numbers{3, 4, 5}));
}

TEST_F(PlanTest, LooksAtTheQueuePairThePeerAndTheProcess) {
  PeerAddress peer{};
  peer[10] = peer[11] = 0xFF;
  peer[12] = 192, peer[14] = 2, peer[15] = 7;
  Plan plan(rules_of("FATAL_ERR at send qp=17; FATAL_ERR at write peer=192.0.2.7; "
                     "EIO at reg-mr process=other"),
            1, opened_ns, "me", false);
  EXPECT_FALSE(plan.at(Point::send, {.now_ns = opened_ns, .queue_pair = 18}));
  EXPECT_TRUE(plan.at(Point::send, {.now_ns = opened_ns, .queue_pair = 17}));
  EXPECT_FALSE(plan.at(Point::write, {.now_ns = opened_ns}));
  EXPECT_TRUE(plan.at(Point::write, {.now_ns = opened_ns, .peer = peer}));
  EXPECT_FALSE(plan.names(Point::register_memory));
  EXPECT_EQ(plan.size(), 2U);
}

// Queue pairs that find each other by number have no side, and no rule for a side applies.
TEST_F(PlanTest, LooksAtTheSide) {
  Plan plan(rules_of("FATAL_ERR at send side=passive; FATAL_ERR at send side=client"), 1, opened_ns,
            "", false);
  EXPECT_FALSE(plan.at(Point::send, {.now_ns = opened_ns}));
  EXPECT_TRUE(plan.at(Point::send, {.now_ns = opened_ns, .side = Side::active}));
  EXPECT_EQ(plan.counts()[0].occurrences, 0U);
  EXPECT_TRUE(plan.at(Point::send, {.now_ns = opened_ns, .side = Side::passive}));
  EXPECT_EQ(plan.counts()[1].occurrences, 1U);
}

TEST_F(PlanTest, TheFirstRuleThatAppliesCounts) {
  Plan plan(rules_of("EIO at reg-mr nth=2; ENOMEM at reg-mr"), 1, opened_ns, "", false);
  EXPECT_EQ(plan.at(Point::register_memory, {.now_ns = opened_ns})->value, ENOMEM);
  EXPECT_EQ(plan.at(Point::register_memory, {.now_ns = opened_ns})->value, EIO);
  const auto counts = plan.counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].rule, "EIO at reg-mr nth=2");
  EXPECT_EQ(counts[0].occurrences, 2U);
  EXPECT_EQ(counts[0].faults, 1U);
  EXPECT_EQ(counts[1].faults, 1U);
}

// nth= chooses a connection, and after= a moment of its life.
TEST_F(PlanTest, SchedulesWhatHappensToAConnection) {
  Plan plan(rules_of("FIN at connection nth=2 after=1KiB; STALL:1s at connection after=2s; "
                     "RST at connection times=1"),
            1, opened_ns, "", false);
  EXPECT_TRUE(plan.names_streams());
  const auto first = plan.schedule({.now_ns = opened_ns});
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].action.failure(), Failure::stall);
  EXPECT_EQ(first[0].after_ns, 2'000'000'000U);
  EXPECT_EQ(first[1].action.failure(), Failure::rst);
  const auto second = plan.schedule({.now_ns = opened_ns});
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[0].action.failure(), Failure::fin);
  EXPECT_EQ(second[0].after_bytes, 1024U);
  EXPECT_EQ(plan.counts()[0].faults, 0U);
  plan.happened(second[0], 17);
  EXPECT_EQ(plan.counts()[0].faults, 1U);
  EXPECT_EQ(plan.counts()[0].occurrences, 2U);
}

TEST_F(PlanTest, KnowsWhichRulesActOnConnections) {
  const auto acts = [](const char* text) {
    return Plan(rules_of(text), 1, opened_ns, "me", false).names_streams();
  };
  EXPECT_TRUE(acts("RST at write nth=3"));
  EXPECT_FALSE(acts("RST at write nth=3 process=other"));
  EXPECT_FALSE(acts("RETRY_EXC_ERR at write nth=3; REJECT at connect"));
}

TEST_F(PlanTest, ListsEventsWithTheirTime) {
  Plan plan(rules_of("PORT_ERR at device after=1s; EIO at reg-mr; PORT_ACTIVE at device"), 1,
            opened_ns, "", false);
  const auto events = plan.events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].after_ns, 1'000'000'000U);
  EXPECT_EQ(events[0].type, 10);
  EXPECT_EQ(events[1].after_ns, 0U);
  plan.happened(events[1]);
  EXPECT_EQ(plan.counts()[2].faults, 1U);
}

}  // namespace
}  // namespace weft::faults
