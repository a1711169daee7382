// How many connections are made to one destination at a time.
#include "device/connect/dial_turns.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/limits.h"

namespace weft::device {
namespace {

class Waiter : public Pollable {
 public:
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override { ++calls; }
  int calls = 0;
};

// Deadlines run in the test's own calls.
class DialTurnsTest : public ::testing::Test {
 protected:
  using Turn = DialTurns::Turn;

  static sockaddr_storage address(std::uint16_t port) {
    sockaddr_storage result{};
    EXPECT_TRUE(parse_address("192.0.2.1", result));
    set_port(result, port);
    return result;
  }
  [[nodiscard]] std::optional<Turn> take(std::uint16_t port, const std::shared_ptr<Waiter>& waiter,
                                         bool within_host = true) {
    return turns_.take(address(port), within_host, waiter);
  }
  // All that there are.
  void take_all(std::uint16_t port) {
    const auto last = std::make_shared<Waiter>();
    while (auto turn = take(port, last)) taken_.push_back(std::move(*turn));
    engine_.poll();
  }

  Engine engine_{ProgressMode::manual};
  DialTurns turns_{engine_};
  std::vector<Turn> taken_;
};

TEST_F(DialTurnsTest, AreAsManyAsTheLimitOfEachDestination) {
  take_all(1);
  EXPECT_EQ(taken_.size(), limits::dials_within_host);
  const auto waiter = std::make_shared<Waiter>();
  EXPECT_TRUE(take(2, waiter)) << "another destination";
  for (std::size_t i = 0; i < limits::dials_to_a_host; ++i) {
    taken_.push_back(*take(3, waiter, false));
  }
  EXPECT_FALSE(take(3, waiter, false));
}

TEST_F(DialTurnsTest, OneThatEndsCallsTheFirstWaiter) {
  take_all(1);
  const auto first = std::make_shared<Waiter>();
  const auto second = std::make_shared<Waiter>();
  EXPECT_FALSE(take(1, first));
  EXPECT_FALSE(take(1, second));
  engine_.poll();
  EXPECT_EQ(first->calls, 0);
  taken_.pop_back();
  engine_.poll();
  EXPECT_EQ(first->calls, 1);
  EXPECT_EQ(second->calls, 0);
  EXPECT_TRUE(take(1, first));  // and gives it back at once
  engine_.poll();
  EXPECT_EQ(second->calls, 1);
}

TEST_F(DialTurnsTest, AWaiterThatIsGoneIsPassedOver) {
  take_all(1);
  const auto waiter = std::make_shared<Waiter>();
  EXPECT_FALSE(take(1, std::make_shared<Waiter>()));
  EXPECT_FALSE(take(1, waiter));
  taken_.pop_back();
  engine_.poll();
  EXPECT_EQ(waiter->calls, 1);
}

TEST_F(DialTurnsTest, AWaiterThatNeedsNoneCallsTwoOthers) {
  take_all(1);
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(std::make_shared<Waiter>());
    EXPECT_FALSE(take(1, waiters.back()));
  }
  turns_.pass_on(address(1));
  engine_.poll();
  EXPECT_EQ(waiters[0]->calls, 1);
  EXPECT_EQ(waiters[1]->calls, 1);
  EXPECT_EQ(waiters[2]->calls, 0);
  turns_.pass_on(address(7));  // without a waiter
}

}  // namespace
}  // namespace weft::device
