// Two ends within one host that agree late to leave TCP, because one of them had to wait for a
// processor, or had thousands of other connections to answer first.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

std::string carrier_of(End& end) {
  return std::string(end.queue_pair->carrier_note().name);
}

class LateAnswer : public SameHostTest {};

// An active end hears nothing where another program listens on the same port of another address, so
// it waits for a second. The passive end knows that its peer is there.
TEST_F(LateAnswer, OfTheActiveEndIsAwaited) {
  constexpr std::chrono::milliseconds longer_than_a_second(1200);
  PairOptions options;
  options.before_active = [&] { std::this_thread::sleep_for(longer_than_a_second); };
  Pair pair(options);
  const auto source = pair.a.buffer(64);
  const auto target = pair.b.buffer(64);
  ASSERT_EQ(pair.a.write(1, {source->sge(0, 64)}, target->address(), target->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(carrier_of(pair.a), "same-host");
  EXPECT_EQ(carrier_of(pair.b), "same-host");
}

}  // namespace
}  // namespace weft::device
