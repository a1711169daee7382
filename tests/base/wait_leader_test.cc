// Which thread handles events: the background thread, or an application thread that waits.
#include "base/wait_leader.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

namespace weft {
namespace {

// The background thread, in stand_aside().
class Aside {
 public:
  explicit Aside(WaitLeader& leader) : leader_(leader) {
    done_ = std::async(std::launch::async, [this] { leader_.stand_aside(); });
    while (!leader_.is_thread_aside() && !is_back()) std::this_thread::yield();
  }

  [[nodiscard]] bool is_back() const {
    return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void await_back() const { done_.wait(); }

 private:
  WaitLeader& leader_;
  std::future<void> done_;
};

TEST(WaitLeader, ASingleWaiterLeads) {
  WaitLeader leader;
  EXPECT_FALSE(leader.has_leader());
  {
    const WaitLeader::Waiter waiter(leader);
    EXPECT_TRUE(waiter.leads());
    EXPECT_TRUE(leader.has_leader());
  }
  EXPECT_FALSE(leader.has_leader());
}

TEST(WaitLeader, NoOtherThreadLeadsWhileOneWaits) {
  WaitLeader leader;
  auto first = std::make_unique<WaitLeader::Waiter>(leader);
  auto second = std::make_unique<WaitLeader::Waiter>(leader);
  EXPECT_FALSE(second->leads());
  first.reset();
  EXPECT_FALSE(leader.has_leader());
  // The second still waits.
  EXPECT_FALSE(WaitLeader::Waiter(leader).leads());
  second.reset();
  EXPECT_TRUE(WaitLeader::Waiter(leader).leads());
}

TEST(WaitLeader, TheThreadReturnsWhenTheWaiterDoesNot) {
  WaitLeader leader;
  auto waiter = std::make_unique<WaitLeader::Waiter>(leader);
  const Aside aside(leader);
  waiter.reset();
  aside.await_back();
  EXPECT_FALSE(leader.is_thread_aside());
}

TEST(WaitLeader, TheThreadStaysAsideWhileTheWaiterWaits) {
  WaitLeader leader;
  auto waiter = std::make_unique<WaitLeader::Waiter>(leader);
  const Aside aside(leader);
  // Another object without a waiter measures time: each call lasts one grace period.
  WaitLeader other;
  for (int periods = 0; periods < 20; ++periods) other.stand_aside();
  EXPECT_FALSE(aside.is_back());
  waiter.reset();
  aside.await_back();
}

TEST(WaitLeader, TheThreadReturnsWhenTheLeaderLeavesAndOthersWait) {
  WaitLeader leader;
  auto leading = std::make_unique<WaitLeader::Waiter>(leader);
  const Aside aside(leader);
  const WaitLeader::Waiter follower(leader);
  leading.reset();
  aside.await_back();
}

TEST(WaitLeader, AfterStopTheThreadIsBackAndNoWaiterLeads) {
  WaitLeader leader;
  const WaitLeader::Waiter waiter(leader);
  const Aside aside(leader);
  leader.stop();
  aside.await_back();
  WaitLeader stopped;
  stopped.stop();
  EXPECT_FALSE(WaitLeader::Waiter(stopped).leads());
}

}  // namespace
}  // namespace weft
