// The language of the rules.
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "faults/names.h"
#include "faults/rules.h"

namespace weft::faults {
namespace {

Rule only_rule(std::string_view text) {
  auto rules = parse(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error());
  if (!rules.ok() || rules->list.size() != 1) return {};
  return rules->list.front();
}

std::string error_of(std::string_view text) {
  const auto rules = parse(text);
  return rules.ok() ? "no error" : rules.error();
}

TEST(RuleParser, ReadsCallsRequestsAndEvents) {
  const Rule call = only_rule("ENOMEM at create-qp nth=2");
  EXPECT_EQ(call.point, Point::create_queue_pair);
  EXPECT_EQ(call.action.kind, ActionKind::call_error);
  EXPECT_EQ(call.action.value, ENOMEM);
  EXPECT_EQ(call.nth, 2U);

  const Rule request = only_rule("REM_ACCESS_ERR at write every=10 times=3");
  EXPECT_EQ(request.action.kind, ActionKind::request_status);
  EXPECT_EQ(request.action.value, 10);
  EXPECT_EQ(request.every, 10U);
  EXPECT_EQ(request.times, 3U);

  const Rule event = only_rule("PORT_ERR at device after=250ms");
  EXPECT_EQ(event.action.kind, ActionKind::device_event);
  EXPECT_EQ(event.action.value, 10);
  EXPECT_EQ(event.after_ns, 250'000'000U);
}

TEST(RuleParser, ReadsFailuresOfConnections) {
  const Rule plain = only_rule("REJECT at connect times=2");
  EXPECT_EQ(plain.point, Point::connect);
  EXPECT_EQ(plain.action.kind, ActionKind::failure);
  EXPECT_EQ(plain.action.failure(), Failure::reject);
  EXPECT_EQ(plain.action.argument, -ECONNREFUSED);
  EXPECT_EQ(only_rule("REJECT:CONSUMER_DEFINED at connect").action.argument, 28);
  EXPECT_EQ(only_rule("reject:stale_conn at connect").action.argument, 10);
  EXPECT_EQ(only_rule("REJECT:77 at connect").action.argument, 77);
  EXPECT_EQ(only_rule("REJECT:ETIMEDOUT at connect").action.argument, -ETIMEDOUT);
  EXPECT_EQ(only_rule("ADDR_ERROR:ENETUNREACH at resolve-addr").action.argument, -ENETUNREACH);
  EXPECT_EQ(only_rule("ROUTE_ERROR at resolve-route").action.argument, -ETIMEDOUT);
  EXPECT_EQ(only_rule("DELAY:20ms at connect-request").action.argument, 20'000'000);
  EXPECT_EQ(only_rule("TIMEWAIT_EXIT:2s at disconnect").action.argument, 2'000'000'000);
  EXPECT_EQ(only_rule("QP_FATAL at write").action.failure(), Failure::queue_pair_fatal);
  EXPECT_EQ(only_rule("TIMEWAIT_EXIT at disconnect").action.argument, 0);
  EXPECT_EQ(only_rule("TERMINATE:1/2/255 at connection").action.argument, 0x102FF);
  EXPECT_EQ(only_rule("STALL:1s at write nth=3").action.argument, 1'000'000'000);
  EXPECT_EQ(only_rule("FIN at connection after=1MiB").after_bytes, 1U << 20);
  EXPECT_EQ(only_rule("UNREACHABLE at pair qp=17").action.failure(), Failure::unreachable);
}

TEST(RuleParser, TakesTheNamesOfTheHeaderInAnyCase) {
  EXPECT_EQ(only_rule("IBV_WC_RETRY_EXC_ERR at send").action.value, 12);
  EXPECT_EQ(only_rule("ibv_event_port_active at device").action.value, 9);
  EXPECT_EQ(only_rule("einval at post-recv").action.value, EINVAL);
}

TEST(RuleParser, ReadsConditions) {
  const Rule rule =
      only_rule("GENERAL_ERR at request p=0.25 after=3MiB qp=0x10 peer=192.0.2.7 process=server");
  EXPECT_EQ(rule.probability, 0.25);
  EXPECT_EQ(rule.after_bytes, 3U << 20);
  EXPECT_EQ(rule.queue_pair, 16U);
  EXPECT_EQ(rule.process, "server");
  ASSERT_TRUE(rule.peer);
  EXPECT_EQ((*rule.peer)[11], 0xFF);
  EXPECT_EQ((*rule.peer)[12], 192);
  EXPECT_EQ((*rule.peer)[15], 7);
  EXPECT_EQ((*only_rule("FATAL_ERR at send peer=2001:db8::9").peer)[15], 9);
  EXPECT_EQ(rule.side, Side::none);
  EXPECT_EQ(only_rule("RNR at arrival side=server").side, Side::passive);
  EXPECT_EQ(only_rule("REJECT at connect side=active").side, Side::active);
}

TEST(RuleParser, ReadsSeveralRulesCommentsAndTheSeed) {
  const auto rules = parse(
      "# two of them\n"
      "seed=42; ENOMEM at reg-mr nth=1 ; ;EIO at post-send # the second\n\n");
  ASSERT_TRUE(rules.ok()) << rules.error();
  EXPECT_EQ(rules->seed, 42U);
  ASSERT_EQ(rules->list.size(), 2U);
  EXPECT_EQ(rules->list[0].text, "ENOMEM at reg-mr nth=1");
  EXPECT_EQ(rules->list[1].text, "EIO at post-send");
}

TEST(RuleParser, ReadsFiles) {
  const std::string path = testing::TempDir() + "/weft-rules-" + std::to_string(getpid());
  std::ofstream(path) << "EIO at reg-mr\nEIO at alloc-pd\n";
  const auto rules = parse("seed=1; @" + path + " ; EIO at create-cq");
  ASSERT_TRUE(rules.ok()) << rules.error();
  EXPECT_EQ(rules->list.size(), 3U);
  std::ofstream(path) << "EIO at nowhere\n";
  EXPECT_TRUE(error_of("@" + path).starts_with(path + ": must be one of the points"));
  std::remove(path.c_str());
  EXPECT_EQ(error_of("@" + path), "cannot read the file of rules " + path);
}

// The caret is below the word that is wrong.
TEST(RuleParser, ShowsThePlaceOfAMistake) {
  const auto place = [](std::string_view text) {
    const std::string error = error_of(text);
    const std::size_t caret = error.rfind('\n') + 1;
    EXPECT_EQ(error.back(), '^') << error;
    return error.size() - 1 - caret - 2;
  };
  EXPECT_EQ(place("ENOMEM at create-pq"), 10U);
  EXPECT_EQ(place("EWHAT at create-qp"), 0U);
  EXPECT_EQ(place("ENOMEM at create-qp nth=0"), 24U);
  EXPECT_EQ(place("ENOMEM at create-qp nth=-1"), 24U);
  EXPECT_EQ(place("ENOMEM at create-qp nth=1x"), 24U);
  EXPECT_EQ(place("ENOMEM at create-qp p=1.5"), 22U);
  EXPECT_EQ(place("ENOMEM at create-qp after=5"), 26U);
  EXPECT_EQ(place("ENOMEM at create-qp after=99999999999999999999s"), 26U);
  EXPECT_EQ(place("EINVAL at post-send qp=0x1000000"), 23U);
  EXPECT_EQ(place("ENOMEM at create-qp sometimes"), 20U);
  EXPECT_EQ(place("PORT_ERR at device nth=2"), 19U);
  EXPECT_EQ(place("RNR at arrival side=left"), 20U);
  EXPECT_EQ(place("REJECT at connect side=passive"), 18U);
  EXPECT_EQ(place("REJECT:SOMEHOW at connect"), 7U);
  EXPECT_EQ(place("REJECT: at connect"), 7U);
  EXPECT_EQ(place("DELAY at connect"), 5U);
  EXPECT_EQ(place("DELAY:5 at connect"), 6U);
  EXPECT_EQ(place("REJECT:CONSUMER_DEFINED at connect-request"), 6U);
  EXPECT_EQ(place("ADDR_ERROR at connect"), 0U);
  EXPECT_EQ(place("TERMINATE:1/2 at connection"), 10U);
  EXPECT_EQ(place("TERMINATE:1/2/3/4 at connection"), 10U);
  EXPECT_EQ(place("TERMINATE:16/2/3 at connection"), 10U);
  EXPECT_EQ(place("FIN at recv"), 0U);
  EXPECT_EQ(place("ENOMEM create-qp"), 7U);
  EXPECT_EQ(place("ENOMEM"), 6U);
  EXPECT_EQ(place("seed=x"), 5U);
  EXPECT_EQ(place("EIO at reg-mr; REM_ACCESS_ERR at reg-mr"), 1U);
}

// Of two values one would be ignored.
TEST(RuleParser, RefusesAConditionThatOccursTwice) {
  EXPECT_TRUE(error_of("ENOMEM at create-qp nth=2 p=0.5 nth=3").starts_with("nth= occurs twice"));
  EXPECT_TRUE(error_of("ENOMEM at create-qp nth=2 nth=2").starts_with("nth= occurs twice"));
  EXPECT_TRUE(error_of("RST at write after=1s after=20ms").starts_with("after= occurs twice"));
  EXPECT_TRUE(error_of("RST at write after=1KiB after=2B").starts_with("after= occurs twice"));
  const Rule both = only_rule("RST at write after=1s after=1KiB");
  EXPECT_EQ(both.after_ns, 1'000'000'000U);
  EXPECT_EQ(both.after_bytes, 1024U);
}

// A rule that could never apply would look like a program that has passed a test.
TEST(RuleParser, RefusesConditionsThatCannotBeMet) {
  const auto refuses = [](std::string_view rule) {
    return error_of(rule).find("can never be met") != std::string::npos;
  };
  EXPECT_TRUE(refuses("PORT_ERR at device nth=2"));
  EXPECT_TRUE(refuses("ENOMEM at reg-mr qp=17"));
  EXPECT_TRUE(refuses("EINVAL at post-send peer=192.0.2.7"));
  EXPECT_TRUE(refuses("REJECT at connect qp=17"));
  EXPECT_FALSE(refuses("REJECT at connect peer=192.0.2.7"));
  EXPECT_TRUE(refuses("UNREACHABLE at pair side=active"));
  EXPECT_TRUE(refuses("ENOMEM at reg-mr side=active"));
  EXPECT_TRUE(refuses("REJECT at connect-request side=active"));
  EXPECT_TRUE(refuses("ADDR_ERROR at resolve-addr side=server"));
  EXPECT_FALSE(refuses("TIMEWAIT_EXIT at disconnect side=server"));
  EXPECT_FALSE(refuses("EINVAL at post-send qp=17"));
  EXPECT_FALSE(refuses("FATAL_ERR at recv peer=192.0.2.7"));
  EXPECT_TRUE(error_of("EINVAL at post-send after=1KiB").starts_with("only requests and"));
  EXPECT_TRUE(error_of("PORT_ERR at device after=1KiB").starts_with("only requests and"));
}

// A call returns an errno value, and a completion has a status: one is not possible at the other.
TEST(RuleParser, RefusesActionsOfOtherPoints) {
  EXPECT_TRUE(
      error_of("ENOMEM at write").starts_with("must be one of these at write: LOC_LEN_ERR"));
  EXPECT_TRUE(error_of("PORT_ERR at send").starts_with("must be one of these at send"));
}

// IBV_WC_LOC_LEN_ERR to IBV_WC_TM_RNDV_INCOMPLETE
TEST(Names, EachStatusButSuccessHasOne) {
  const auto names = value_names(ActionKind::request_status);
  ASSERT_EQ(names.size(), 23U);
  for (std::int64_t status = 1; status <= 23; ++status) {
    EXPECT_EQ(names[static_cast<std::size_t>(status) - 1].value, status);
  }
  EXPECT_EQ(only_rule("TM_RNDV_INCOMPLETE at send").action.value, 23);
}

TEST(Names, EachPointHasOneAndIsFound) {
  for (std::size_t i = 0; i < point_count; ++i) {
    const auto point = static_cast<Point>(i);
    const PointName* found = find_point(name_of(point));
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->point, point);
  }
}

}  // namespace
}  // namespace weft::faults
