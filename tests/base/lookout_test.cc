// Who looks out: the thread that exists for it, or the one of the application that waits.
#include "base/lookout.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

namespace weft {
namespace {

// The other thread, in stand_aside().
class Aside {
 public:
  explicit Aside(Lookout& lookout) : lookout_(lookout) {
    done_ = std::async(std::launch::async, [this] { lookout_.stand_aside(); });
    while (!lookout_.stands_aside() && !is_back()) std::this_thread::yield();
  }

  [[nodiscard]] bool is_back() const {
    return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void await_back() const { done_.wait(); }

 private:
  Lookout& lookout_;
  std::future<void> done_;
};

TEST(Lookout, WhoWaitsAloneLeads) {
  Lookout lookout;
  EXPECT_FALSE(lookout.is_led());
  {
    const Lookout::Waiter waiter(lookout);
    EXPECT_TRUE(waiter.leads());
    EXPECT_TRUE(lookout.is_led());
  }
  EXPECT_FALSE(lookout.is_led());
}

TEST(Lookout, NobodyElseLeadsWhileSomebodyWaits) {
  Lookout lookout;
  auto first = std::make_unique<Lookout::Waiter>(lookout);
  auto second = std::make_unique<Lookout::Waiter>(lookout);
  EXPECT_FALSE(second->leads());
  first.reset();
  EXPECT_FALSE(lookout.is_led());
  // The second still waits.
  EXPECT_FALSE(Lookout::Waiter(lookout).leads());
  second.reset();
  EXPECT_TRUE(Lookout::Waiter(lookout).leads());
}

TEST(Lookout, TheThreadIsBackWhenTheWaiterDoesNotReturn) {
  Lookout lookout;
  auto waiter = std::make_unique<Lookout::Waiter>(lookout);
  const Aside aside(lookout);
  waiter.reset();
  aside.await_back();
  EXPECT_FALSE(lookout.stands_aside());
}

TEST(Lookout, TheThreadStaysAsideWhileTheWaiterWaits) {
  Lookout lookout;
  auto waiter = std::make_unique<Lookout::Waiter>(lookout);
  const Aside aside(lookout);
  // A second thread that stands aside as well is not what it is for; but it shows that time passes.
  Lookout other;
  for (int moments = 0; moments < 20; ++moments) other.stand_aside();
  EXPECT_FALSE(aside.is_back());
  waiter.reset();
  aside.await_back();
}

TEST(Lookout, TheThreadIsCalledWhereOthersStillWait) {
  Lookout lookout;
  auto leader = std::make_unique<Lookout::Waiter>(lookout);
  const Aside aside(lookout);
  const Lookout::Waiter follower(lookout);
  leader.reset();
  aside.await_back();
}

TEST(Lookout, AtTheEndTheThreadIsBackAndNobodyLeads) {
  Lookout lookout;
  const Lookout::Waiter waiter(lookout);
  const Aside aside(lookout);
  lookout.end();
  aside.await_back();
  Lookout ended;
  ended.end();
  EXPECT_FALSE(Lookout::Waiter(ended).leads());
}

}  // namespace
}  // namespace weft
