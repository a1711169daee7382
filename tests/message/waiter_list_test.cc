// The list of coroutines that wait for one connection, without a connection.
#include "message/waiter_list.h"

#include <gtest/gtest.h>

#include <coroutine>
#include <memory>
#include <vector>

#include "message/loop_core.h"

namespace weft::message::detail {
namespace {

std::shared_ptr<Suspension> waiting() {
  auto suspension =
      std::make_shared<Suspension>(std::weak_ptr<LoopCore>(), Deadline::never(), std::stop_token());
  suspension->suspend(std::noop_coroutine());
  return suspension;
}

TEST(WaiterList, DoesNotGrowWithWaitsThatHaveEnded) {
  const auto witness = std::make_shared<int>(0);
  WaiterList waiters;
  std::vector<std::shared_ptr<Suspension>> live;
  for (int i = 0; i < 10'000; ++i) {
    auto late = waiting();
    waiters.add(late, [witness] { return false; });
    if (i % 1000 == 0) {
      live.push_back(waiting());
      waiters.add(live.back(), [witness] { return *witness != 0; });
    }
    late->forget();
  }
  EXPECT_LT(witness.use_count(), 50);
  for (const auto& each : live) EXPECT_TRUE(each->waits());
  *witness = 1;
  waiters.resume_ready();
  for (const auto& each : live) EXPECT_FALSE(each->waits());
  EXPECT_EQ(witness.use_count(), 1);
}

}  // namespace
}  // namespace weft::message::detail
