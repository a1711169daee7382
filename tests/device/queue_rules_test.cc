// Rules of the queues: an entry is in use until its completion was polled, the state SQD, and the
// events of a queue pair.
#include <poll.h>

#include "device/raw_end.h"

namespace weft::device {
namespace {

PairOptions with_queues_of(std::uint32_t requests) {
  PairOptions options;
  options.ends.send_requests = options.ends.receive_requests = requests;
  return options;
}

ibv_event_type next_event(Context& context) {
  pollfd entry{context.verbs()->async_fd, POLLIN, 0};
  if (poll(&entry, 1, 10'000) != 1) return IBV_EVENT_DEVICE_FATAL;
  ibv_async_event event{};
  EXPECT_EQ(context.next_event(event), 0);
  context.acknowledge(event);
  return event.event_type;
}

bool no_event(Context& context) {
  pollfd entry{context.verbs()->async_fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 0;
}

// A program that posts until ENOMEM must not overrun a completion queue with as many entries.
TEST(QueuePlaces, AreTakenUntilTheCompletionWasPolled) {
  Pair pair(with_queues_of(2));
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  const auto write = [&](std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    return pair.a.write(id, {local->sge(0, 8)}, remote->address(), remote->rkey(), flags);
  };
  ASSERT_EQ(write(1), 0);
  ASSERT_EQ(write(2), 0);
  pollfd quiet{-1, 0, 0};
  ASSERT_EQ(poll(&quiet, 1, 50), 0);  // both completions may be in the queue by now
  EXPECT_EQ(write(3), ENOMEM);
  EXPECT_EQ(pair.a.await().wr_id, 1U);
  EXPECT_EQ(write(4), 0);
  EXPECT_EQ(write(5), ENOMEM);
  EXPECT_EQ(pair.a.await().wr_id, 2U);
  EXPECT_EQ(pair.a.await().wr_id, 4U);
}

TEST(QueuePlaces, OfUnsignaledRequestsComeBackWithTheNextSignaledOne) {
  Pair pair(with_queues_of(4));
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      ASSERT_EQ(pair.a.write(i, {local->sge(0, 8)}, remote->address(), remote->rkey(),
                             i == 3 ? unsigned{IBV_SEND_SIGNALED} : 0U),
                0);
    }
    EXPECT_EQ(pair.a.write(9, {local->sge(0, 8)}, remote->address(), remote->rkey()), ENOMEM);
    EXPECT_EQ(pair.a.await().wr_id, 3U);
  }
}

TEST(QueuePlaces, OfReceivesLikewise) {
  for (const bool shared : {false, true}) {
    PairOptions options;
    options.ends.shared_receives = shared;
    options.ends.receive_requests = 64;  // the size of the fixture's shared queue
    Pair pair(options);
    auto local = pair.a.buffer(8);
    auto remote = pair.b.buffer(8);
    for (std::uint64_t i = 0; i < 64; ++i) {
      ASSERT_EQ(pair.b.post_receive(i, {remote->sge(0, 8)}), 0);
    }
    ASSERT_EQ(pair.a.send(1, {local->sge(0, 8)}), 0);
    EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);  // the peer's receive has completed
    EXPECT_EQ(pair.b.post_receive(64, {remote->sge(0, 8)}), ENOMEM);
    EXPECT_EQ(pair.b.await().wr_id, 0U);
    EXPECT_EQ(pair.b.post_receive(65, {remote->sge(0, 8)}), 0);
  }
}

TEST(QueuePlaces, ComeBackWithReset) {
  const auto device = make_roce_device();
  EndOptions options;
  options.receive_requests = 2;
  RawEnd end(*device, options);
  auto local = end.buffer(8);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(end.to_init(), 0);
    for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(end.post_receive(i, {local->sge(0, 8)}), 0);
    EXPECT_EQ(end.post_receive(2, {local->sge(0, 8)}), ENOMEM);
    ASSERT_EQ(end.to(IBV_QPS_RESET), 0);
    EXPECT_FALSE(end.look());
  }
}

TEST(QueuePlaces, AreTakenByFlushedRequestsToo) {
  Pair pair(with_queues_of(2));
  auto local = pair.a.buffer(8);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.a.queue_pair->modify(attributes, IBV_QP_STATE), 0);
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(pair.a.send(i, {local->sge(0, 8)}), 0);
    ASSERT_EQ(pair.a.post_receive(10 + i, {local->sge(0, 8)}), 0);
  }
  EXPECT_EQ(pair.a.send(2, {local->sge(0, 8)}), ENOMEM);
  EXPECT_EQ(pair.a.post_receive(12, {local->sge(0, 8)}), ENOMEM);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pair.a.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.send(3, {local->sge(0, 8)}), 0);
}

TEST(CompletionQueueOverrun, IsAnErrorOfTheQueuePairAsWell) {
  PairOptions options;
  options.ends.completions = 2;
  Pair pair(options);
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.a.write(i, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  }
  EXPECT_EQ(next_event(pair.a.context), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(next_event(pair.a.context), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(pair.a.queue_pair->verbs()->state, IBV_QPS_ERR);
  EXPECT_TRUE(no_event(pair.a.context));
}

class QueuePairEvents : public ::testing::Test {
 protected:
  static int go(RawEnd& end, ibv_qp_state state, int more = 0, bool notify = false) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.en_sqd_async_notify = notify ? 1 : 0;
    return end.queue_pair->modify(attributes, IBV_QP_STATE | more);
  }

  std::unique_ptr<Device> left_ = make_roce_device();
  std::unique_ptr<Device> right_ = make_roce_device();
};

// SQD, ibv_modify_qp(3): requests posted in SQD wait, earlier ones complete.
TEST_F(QueuePairEvents, SqdDrainsTellsAndHoldsWhatIsPosted) {
  RawEnd a(*left_);
  RawEnd b(*right_);
  a.connect(b);
  b.connect(a);
  pass_message(a, b);
  auto local = a.buffer(8);
  auto remote = b.buffer(8);
  ASSERT_EQ(a.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  ASSERT_EQ(go(a, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, true), 0);
  EXPECT_EQ(next_event(a.context), IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(a.await().wr_id, 1U);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  a.queue_pair->query(attributes, initial);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_SQD);
  EXPECT_EQ(attributes.sq_draining, 0);
  local->fill(7);
  ASSERT_EQ(a.write(2, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  pass_message(b, a);  // receiving continues in SQD
  EXPECT_FALSE(a.look());
  EXPECT_FALSE(remote->holds(7, 0, 8));
  ASSERT_EQ(go(a, IBV_QPS_RTS), 0);
  EXPECT_EQ(a.await().wr_id, 2U);
  EXPECT_TRUE(remote->holds(7, 0, 8));
  EXPECT_TRUE(no_event(a.context));
}

TEST_F(QueuePairEvents, TheFirstMessageInRtrIsCommunicationEstablished) {
  RawEnd client(*left_);
  RawEnd server(*right_);
  ASSERT_EQ(server.to_init(), 0);
  ASSERT_EQ(server.to_rtr(client.gid(), client.number()), 0);
  client.connect(server);
  pass_message(client, server);
  pass_message(client, server);
  EXPECT_EQ(next_event(server.context), IBV_EVENT_COMM_EST);
  EXPECT_TRUE(no_event(server.context));
  EXPECT_TRUE(no_event(client.context));
}

TEST_F(QueuePairEvents, ARefusedAccessIsAnEventForItsTarget) {
  RawEnd client(*left_);
  RawEnd server(*right_);
  client.connect(server);
  server.connect(client);
  pass_message(client, server);
  auto local = client.buffer(8);
  auto remote = server.buffer(8, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(client.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(client.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(next_event(server.context), IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_TRUE(no_event(server.context));
}

TEST_F(QueuePairEvents, TheLastReceiveOfASharedQueueIsToldOnce) {
  EndOptions options;
  options.shared_receives = true;
  RawEnd end(*left_, options);
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(go(end, IBV_QPS_ERR), 0);
  ASSERT_EQ(go(end, IBV_QPS_ERR), 0);
  EXPECT_EQ(next_event(end.context), IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_TRUE(no_event(end.context));
}

}  // namespace
}  // namespace weft::device
