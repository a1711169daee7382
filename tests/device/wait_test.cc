// Sends that arrive before their receive is posted, over real sockets and with the device's own
// clock.
#include "device/limits.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

constexpr std::uint32_t hold_bytes = 64 * 1024;

PairOptions patient(bool shared_receives = false) {
  PairOptions options;
  options.weft_peers = true;
  options.hold_bytes = hold_bytes;
  options.ends.shared_receives = shared_receives;
  return options;
}

int set_state(End& end, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  return end.queue_pair->modify(attributes, IBV_QP_STATE);
}

int set_timer(End& end, std::uint8_t code) {
  ibv_qp_attr attributes{};
  attributes.min_rnr_timer = code;
  return end.queue_pair->modify(attributes, IBV_QP_MIN_RNR_TIMER);
}

int set_retries(End& end, std::uint8_t retries) {
  ibv_qp_attr attributes{};
  attributes.rnr_retry = retries;
  return end.queue_pair->modify(attributes, IBV_QP_RNR_RETRY);
}

int send_with_immediate(End& end, std::uint64_t wr_id, std::vector<ibv_sge> slices,
                        std::uint32_t immediate) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = immediate;
  return end.post(request, std::move(slices));
}

class LateReceives : public testing::TestWithParam<bool> {};

// More messages than the hold buffer takes, some larger than it, sent long before the first receive
// is posted.
TEST_P(LateReceives, GetEverySendInOrder) {
  constexpr std::size_t largest = 3 * hold_bytes;
  constexpr std::uint64_t count = 12;
  Pair pair(patient(GetParam()));
  auto from = pair.a.buffer(largest);
  auto to = pair.b.buffer(largest);
  from->fill(3);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(pair.a.send(i, {from->sge(0, i % 3 == 0 ? largest : 1000 * i)}), 0);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    EXPECT_FALSE(pair.a.look()) << "complete without a receive";
    ASSERT_EQ(pair.b.post_receive(i, {to->sge(0, largest)}), 0);
    const ibv_wc received = pair.b.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, i);
    EXPECT_EQ(received.byte_len, i % 3 == 0 ? largest : 1000 * i);
    EXPECT_TRUE(to->holds(3, 0, received.byte_len));
    const ibv_wc sent = pair.a.await();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.wr_id, i);
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, LateReceives, testing::Bool(),
                         [](const auto& test) { return test.param ? "Shared" : "Own"; });

// Two queue pairs wait for one shared receive queue: each receive goes to one of them.
TEST(Wait, ASharedReceiveWakesWhoeverWaits) {
  Pair first(patient(true));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = first.b.queue.verbs();
  attributes.srq = first.b.shared->verbs();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {4, 0, 1, 0, 0};
  const auto second = QueuePair::create(first.b.context, &first.b.domain->pd, attributes);
  End sender(*first.device, {});
  Pair::connect(*sender.queue_pair, *second, patient());

  auto from = first.a.buffer(10);
  auto other = sender.buffer(10);
  auto to = first.b.buffer(10);
  ASSERT_EQ(first.a.send(1, {from->sge(0, 10)}), 0);
  ASSERT_EQ(sender.send(2, {other->sge(0, 5)}), 0);
  std::uint32_t received = 0;
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(first.b.post_receive(i, {to->sge(0, 10)}), 0);
    received += first.b.await().byte_len;
  }
  EXPECT_EQ(received, 15U);
  EXPECT_EQ(first.a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  second->destroy();
}

// The receiver's attribute sets the RNR timer, the sender's the number of retries, as on
// InfiniBand.
TEST(Wait, EndsWithTheReceiversTimerAndTheSendersRetries) {
  Pair pair(patient());
  ASSERT_EQ(set_timer(pair.b, 1), 0);
  // In RTS the number of retries may be changed only while the send queue is drained.
  ASSERT_EQ(set_state(pair.a, IBV_QPS_SQD), 0);
  ASSERT_EQ(set_retries(pair.a, 2), 0);
  ASSERT_EQ(set_state(pair.a, IBV_QPS_RTS), 0);
  auto from = pair.a.buffer(10);
  ASSERT_EQ(pair.a.send(1, {from->sge(0, 10)}), 0);
  ASSERT_EQ(pair.a.send(2, {from->sge(0, 10)}), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.queue_pair->verbs()->state, IBV_QPS_ERR);
}

TEST(Wait, ASendWithImmediateIsASendWithItsImmediate) {
  Pair pair(patient());
  auto from = pair.a.buffer(10);
  auto to = pair.b.buffer(10);
  ASSERT_EQ(send_with_immediate(pair.a, 1, {from->sge(0, 7)}, 0x12345678), 0);
  ASSERT_EQ(pair.b.post_receive(2, {to->sge(0, 10)}), 0);
  const ibv_wc received = pair.b.await();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
  EXPECT_EQ(received.imm_data, 0x12345678U);
  EXPECT_EQ(received.byte_len, 7U);
  const ibv_wc sent = pair.a.await();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
}

TEST(Wait, ASendWithImmediateToAStrangerIsUnsupported) {
  Pair pair;
  EXPECT_EQ(send_with_immediate(pair.a, 1, {}, 5), EOPNOTSUPP);
}

// Programs that connect by GID and number get the same behaviour without asking for it.
TEST(Wait, IsWhatQueuePairsWithoutACmAgreeOn) {
  const auto left = make_roce_device();
  const auto right = make_roce_device();
  RawEnd a(*left);
  RawEnd b(*right);
  a.connect(b, iwarp::rnr_retry_infinite);
  b.connect(a, iwarp::rnr_retry_infinite);
  constexpr std::size_t larger_than_the_hold = 2 * limits::hold_bytes;
  auto from = a.buffer(larger_than_the_hold);
  auto to = b.buffer(larger_than_the_hold);
  from->fill(1);
  ASSERT_EQ(send_with_immediate(a, 1, {from->sge(0, 100)}, 77), 0);
  ASSERT_EQ(a.send(2, {from->sge(0, larger_than_the_hold)}), 0);
  EXPECT_TRUE(a.stays_quiet());
  ASSERT_EQ(b.post_receive(1, {to->sge(0, 100)}), 0);
  EXPECT_EQ(b.await().imm_data, 77U);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  ASSERT_EQ(b.post_receive(2, {to->sge(0, larger_than_the_hold)}), 0);
  EXPECT_EQ(b.await().byte_len, larger_than_the_hold);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(to->holds(1, 0, larger_than_the_hold));
}

TEST(Wait, EndsAtOnceWithoutRetries) {
  const auto device = make_roce_device();
  RawEnd a(*device);
  RawEnd b(*device);
  a.connect(b, 0);
  b.connect(a, 0);
  auto from = a.buffer(10);
  ASSERT_EQ(a.send(1, {from->sge(0, 10)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(Wait, AQueuePairMayWaitForItself) {
  const auto device = make_roce_device();
  RawEnd end(*device);
  end.connect(end, iwarp::rnr_retry_infinite);
  constexpr std::size_t larger_than_the_hold = 2 * limits::hold_bytes;
  auto from = end.buffer(larger_than_the_hold);
  auto to = end.buffer(larger_than_the_hold);
  from->fill(5);
  ASSERT_EQ(end.send(1, {from->sge(0, 10)}), 0);
  ASSERT_EQ(end.send(2, {from->sge(0, larger_than_the_hold)}), 0);
  EXPECT_TRUE(end.stays_quiet());
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(end.post_receive(i, {to->sge(0, larger_than_the_hold)}), 0);
    for (int completion = 0; completion < 2; ++completion) {
      EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
    }
  }
  EXPECT_TRUE(to->holds(5, 0, larger_than_the_hold));
}

// A message that waits for a receive does not prevent the destruction of either end.
TEST(Wait, EndsWithEitherSide) {
  for (const bool sender_first : {true, false}) {
    Pair pair(patient());
    auto from = pair.a.buffer(10);
    ASSERT_EQ(pair.a.send(1, {from->sge(0, 10)}), 0);
    End& first = sender_first ? pair.a : pair.b;
    first.queue_pair->disconnect();
    EXPECT_NE(pair.a.await().status, IBV_WC_SUCCESS);
  }
}

TEST(MemoryTable, NoRegionHasAControlStag) {
  MemoryTable table;
  for (int i = 0; i < 10'000; ++i) {
    Region region;
    ASSERT_TRUE(table.add(region));
    EXPECT_LT(region.mr.rkey, 0xFF000000U);
    EXPECT_GE(table.random_control_stag(), 0xFF000000U);
    table.remove(region);
  }
}

}  // namespace
}  // namespace weft::device
