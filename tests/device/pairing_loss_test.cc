// Queue pairs without rdma_cm: the peer does not exist, or disappears.
#include "device/connect/pairing.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

class Loss : public ::testing::Test {
 protected:
  std::unique_ptr<Device> left_ = make_roce_device();
  std::unique_ptr<Device> right_ = make_roce_device();
};

// The number of a destroyed queue pair; if `slot_is_gone`, its process's slot is free as well.
std::uint32_t number_of_the_past(bool slot_is_gone, std::unique_ptr<Device>& device) {
  const std::uint32_t number = RawEnd(*device).number();
  if (slot_is_gone) device.reset();
  return number;
}

void expect_retry_exceeded(RawEnd& end) {
  auto buffer = end.buffer(8);
  ASSERT_EQ(end.post_receive(1, {buffer->sge(0, 8)}), 0);
  ASSERT_EQ(end.send(2, {buffer->sge(0, 8)}, 0), 0)
      << "unsignaled: its failure is told all the same";
  ASSERT_EQ(end.send(3, {buffer->sge(0, 8)}), 0);
  const ibv_wc first = end.await();
  EXPECT_EQ(first.wr_id, 2U);
  EXPECT_EQ(first.status, IBV_WC_RETRY_EXC_ERR);
  const ibv_wc second = end.await();
  EXPECT_EQ(second.wr_id, 3U);
  EXPECT_EQ(second.status, IBV_WC_WR_FLUSH_ERR);
  const ibv_wc receive = end.await();
  EXPECT_EQ(receive.wr_id, 1U);
  EXPECT_EQ(receive.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(end.state(), IBV_QPS_ERR);
}

TEST_F(Loss, NobodyThereEndsInRetryExceeded) {
  for (const bool slot_is_gone : {false, true}) {
    RawEnd end(*left_);
    const ibv_gid gid = end.gid();
    const std::uint32_t number = number_of_the_past(slot_is_gone, right_);
    ASSERT_EQ(end.to_init(), 0);
    ASSERT_EQ(end.to_rtr(gid, number), 0);
    ASSERT_EQ(end.to_rts(), 0);
    expect_retry_exceeded(end);
  }
}

TEST_F(Loss, WithoutWorkNothingTimesOut) {
  RawEnd ready(*left_);
  RawEnd sending(*left_);
  const std::uint32_t number = number_of_the_past(false, right_);
  ASSERT_EQ(ready.to_init(), 0);
  ASSERT_EQ(ready.to_rtr(ready.gid(), number), 0);
  ASSERT_EQ(sending.to_init(), 0);
  ASSERT_EQ(sending.to_rtr(sending.gid(), number), 0);
  ASSERT_EQ(sending.to_rts(), 0);
  EXPECT_TRUE(ready.stays_quiet());
  EXPECT_EQ(ready.state(), IBV_QPS_RTR);
  EXPECT_EQ(sending.state(), IBV_QPS_RTS);
}

TEST_F(Loss, TimeoutZeroWaitsForEver) {
  RawEnd end(*left_);
  const std::uint32_t number = number_of_the_past(true, right_);
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(end.to_rtr(end.gid(), number), 0);
  ASSERT_EQ(end.to_rts(0), 0);
  auto buffer = end.buffer(8);
  ASSERT_EQ(end.send(1, {buffer->sge(0, 8)}), 0);
  EXPECT_TRUE(end.stays_quiet());
}

// Waits longer than the timeout for an absent peer: this peer exists, but is not ready yet.
TEST_F(Loss, APeerThatIsNotReadyCostsNoRetry) {
  RawEnd early(*left_);
  RawEnd late(*right_);
  ASSERT_EQ(late.to_init(), 0);
  early.connect(late);
  auto source = early.buffer(8);
  auto target = late.buffer(8);
  ASSERT_EQ(late.post_receive(1, {target->sge(0, 8)}), 0);
  ASSERT_EQ(early.send(2, {source->sge(0, 8)}), 0);
  EXPECT_TRUE(early.stays_quiet());
  ASSERT_EQ(late.to_rtr(early.gid(), early.number()), 0);
  EXPECT_EQ(late.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(early.await().status, IBV_WC_SUCCESS);
}

TEST_F(Loss, AQueuePairWithNothingUnderWayOutlivesItsPeer) {
  RawEnd stays(*left_);
  {
    RawEnd goes(*right_);
    stays.connect_briefly(goes);
    goes.connect(stays);
    pass_message(goes, stays);
    auto unused = stays.buffer(8);
    ASSERT_EQ(stays.post_receive(9, {unused->sge(0, 8)}), 0);
  }
  EXPECT_TRUE(stays.stays_quiet()) << "the receive is still posted";
  EXPECT_EQ(stays.state(), IBV_QPS_RTS);
  auto buffer = stays.buffer(8);
  ASSERT_EQ(stays.send(1, {buffer->sge(0, 8)}), 0);
  const ibv_wc completion = stays.await();
  EXPECT_EQ(completion.wr_id, 1U);
  EXPECT_EQ(completion.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(stays.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(stays.state(), IBV_QPS_ERR);
}

TEST_F(Loss, APeerThatGoesUnderWayFailsTheRequest) {
  RawEnd stays(*left_);
  auto goes = std::make_unique<RawEnd>(*right_);
  stays.connect_briefly(*goes);
  goes->connect(stays);
  pass_message(stays, *goes);
  auto local = stays.buffer(8);
  // The peer has posted no receive, so it cannot have completed the read.
  ASSERT_EQ(stays.read(1, {local->sge(0, 8)}, 0, 0), 0);
  goes.reset();
  EXPECT_NE(stays.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(stays.state(), IBV_QPS_ERR);
}

// A peer may finish and disappear while its last responses are still unread: the requests that they
// answer must not fail.
TEST_F(Loss, APeerThatGoesFailsNothingBeforeItsTime) {
  RawEnd stays(*left_);
  auto goes = std::make_unique<RawEnd>(*right_);
  for (const auto& [end, other] : {std::pair(&stays, goes.get()), std::pair(goes.get(), &stays)}) {
    ASSERT_EQ(end->to_init(), 0);
    ASSERT_EQ(end->to_rtr(other->gid(), other->number()), 0);
    ASSERT_EQ(end->to_rts(0, 0, 7), 0);
  }
  pass_message(stays, *goes);
  auto local = stays.buffer(8);
  // The peer has posted no receive, so its device holds the message.
  ASSERT_EQ(stays.send(1, {local->sge(0, 8)}), 0);
  goes.reset();
  EXPECT_TRUE(stays.stays_quiet());
  EXPECT_EQ(stays.state(), IBV_QPS_RTS);
  ASSERT_EQ(stays.send(2, {local->sge(0, 8)}), 0);
  EXPECT_TRUE(stays.stays_quiet());
  ASSERT_EQ(stays.to(IBV_QPS_ERR), 0);
  for (const std::uint64_t request : {1U, 2U}) {
    const ibv_wc completion = stays.await();
    EXPECT_EQ(completion.wr_id, request);
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  }
}

// A failure belongs to the connection that it has ended, also where two processes that have met
// connect without TCP.
TEST_F(Loss, AQueuePairThatHasFailedBeforeOutlivesItsNextPeer) {
  for (int i = 0; i < 3; ++i) {
    RawEnd here(*left_);
    RawEnd there(*right_);
    here.connect(there);
    there.connect(here);
    pass_message(here, there);
  }
  RawEnd lasting(*left_);
  auto buffer = lasting.buffer(8);
  {
    RawEnd first(*right_);
    lasting.connect(first);
    first.connect(lasting);
    pass_message(first, lasting);
    ASSERT_EQ(lasting.post_receive(1, {buffer->sge(0, 8)}), 0);
    ASSERT_EQ(lasting.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(lasting.await().status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(lasting.to(IBV_QPS_RESET), 0);
  }
  {
    RawEnd second(*right_);
    lasting.connect(second);
    second.connect(lasting);
    pass_message(second, lasting);
    ASSERT_EQ(lasting.post_receive(2, {buffer->sge(0, 8)}), 0);
  }
  EXPECT_TRUE(lasting.stays_quiet());
  EXPECT_EQ(lasting.state(), IBV_QPS_RTS);
}

// Resets both queue pairs and connects them again, first one end and then the other, as rdma-core's
// tests do.
TEST_F(Loss, ResetQueuePairsConnectAgain) {
  RawEnd a(*left_);
  RawEnd b(*right_);
  a.connect(b);
  b.connect(a);
  for (int turn = 0; turn < 5; ++turn) {
    pass_message(a, b);
    pass_message(b, a);
    for (RawEnd* end : {&a, &b}) {
      ASSERT_EQ(end->to(IBV_QPS_ERR), 0);
      ASSERT_EQ(end->to(IBV_QPS_RESET), 0);
      EXPECT_EQ(end->state(), IBV_QPS_RESET);
      end->connect(end == &a ? b : a);
    }
  }
  pass_message(a, b);
}

TEST_F(Loss, ResetForgetsWaitingWork) {
  RawEnd a(*left_);
  RawEnd b(*right_);
  a.connect(b);
  auto buffer = a.buffer(8);
  ASSERT_EQ(a.send(1, {buffer->sge(0, 8)}), 0);
  ASSERT_EQ(a.to(IBV_QPS_RESET), 0);
  a.connect(b);
  b.connect(a);
  pass_message(a, b);
  EXPECT_FALSE(a.look());
}

TEST_F(Loss, ErrorFlushesWaitingWork) {
  RawEnd a(*left_);
  RawEnd b(*right_);
  a.connect(b);
  auto buffer = a.buffer(8);
  ASSERT_EQ(a.send(1, {buffer->sge(0, 8)}, 0), 0);
  ASSERT_EQ(a.to(IBV_QPS_ERR), 0);
  const ibv_wc completion = a.await();
  EXPECT_EQ(completion.wr_id, 1U);
  EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Patience, FollowsTheAttributes) {
  constexpr std::uint64_t second_ns = 1'000'000'000;
  EXPECT_EQ(retry_time_ns(0, 7, second_ns), 0U);
  EXPECT_EQ(retry_time_ns(14, 7, second_ns), second_ns) << "half a second, below the least";
  EXPECT_EQ(retry_time_ns(20, 3, second_ns), 4 * (4096ULL << 20U));
  EXPECT_EQ(retry_time_ns(31, 0, second_ns), 4096ULL << 31U);
}

}  // namespace
}  // namespace weft::device
