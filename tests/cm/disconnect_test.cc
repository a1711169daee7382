#include <array>
#include <cstring>

#include "cm/fixture.h"
#include "device/queue_pair/queue_pair.h"
#include "device/system.h"
#include "faults/rules.h"

namespace weft::cm {
namespace {

class Disconnect : public CmTest {
 protected:
  void post_receive(rdma_cm_id* id) {
    ibv_recv_wr request{};
    request.wr_id = 5;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(id->qp, &request, &bad), 0);
  }
};

TEST_F(Disconnect, EndsBothSidesOnceAndFlushes) {
  for (const bool client_first : {true, false}) {
    Pair pair = connect_pair();
    post_receive(pair.client);
    post_receive(pair.server);
    ASSERT_EQ(manager_->disconnect(client_first ? pair.client : pair.server), 0);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(completion_of(pair.client->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion_of(pair.server->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(pair.client->qp->state, IBV_QPS_ERR);
    EXPECT_EQ(pair.server->qp->state, IBV_QPS_ERR);
    EXPECT_TRUE(quiet(active_));
    EXPECT_TRUE(quiet(passive_));
    destroy(pair);
  }
}

class TimewaitExit : public Disconnect {
 protected:
  explicit TimewaitExit(const char* rule = "TIMEWAIT_EXIT at disconnect nth=1") {
    settings_.faults = *faults::parse(rule);
  }
};

TEST_F(TimewaitExit, FollowsTheEndWhereARuleWantsIt) {
  Pair pair = connect_pair();
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  // Either side may have been the first one.
  std::array<pollfd, 2> channels{{{active_->fd, POLLIN, 0}, {passive_->fd, POLLIN, 0}}};
  ASSERT_EQ(::poll(channels.data(), channels.size(), patience_ms), 1);
  const bool at_client = channels[0].revents != 0;
  Event event = expect(at_client ? active_ : passive_, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->id, at_client ? pair.client : pair.server);
  event.reset();
  EXPECT_TRUE(quiet(active_));
  EXPECT_TRUE(quiet(passive_));
  destroy(pair);
}

class LateTimewaitExit : public TimewaitExit {
 protected:
  LateTimewaitExit() : TimewaitExit("TIMEWAIT_EXIT:200ms at disconnect") {}
};

TEST_F(LateTimewaitExit, ComesLaterAndNotAfterTheEndOfTheId) {
  Pair pair = connect_pair();
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  const std::uint64_t ended_ns = device::sys::now_ns();
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair.server);
  pair.server = nullptr;
  EXPECT_NE(expect(active_, RDMA_CM_EVENT_TIMEWAIT_EXIT), nullptr);
  EXPECT_GE(device::sys::now_ns() - ended_ns, 100'000'000U) << "began before it was seen here";
  EXPECT_TRUE(quiet(passive_)) << "its id is destroyed";
  destroy(pair.client);
}

TEST_F(Disconnect, MayBeCalledByBothAndAgain) {
  Pair pair = connect_pair();
  EXPECT_EQ(manager_->disconnect(pair.client), 0);
  EXPECT_EQ(manager_->disconnect(pair.client), 0);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(manager_->disconnect(pair.server), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_TRUE(quiet(active_));
  EXPECT_TRUE(quiet(passive_));
  destroy(pair);
}

TEST_F(Disconnect, DestroyingTheQueuePairIsOne) {
  Pair pair = connect_pair();
  manager_->destroy_qp(pair.server);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(manager_->disconnect(pair.server), 0);
  destroy(pair);
}

TEST_F(Disconnect, DestroyingTheIdIsOneForThePeer) {
  Pair pair = connect_pair();
  // rdma_destroy_id(3) asks to destroy the queue pair first; this program does not.
  rdma_cm_id kept = *pair.server;
  ASSERT_EQ(manager_->destroy_id(pair.server), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_TRUE(quiet(passive_));
  EXPECT_EQ(kept.qp->state, IBV_QPS_ERR);
  destroy(pair.client);
  device::QueuePair::of(kept.qp)->destroy();
  for (ibv_cq* queue : {kept.send_cq, kept.recv_cq}) delete device::CompletionQueue::of(queue);
  for (ibv_comp_channel* channel : {kept.send_cq_channel, kept.recv_cq_channel}) {
    delete device::CompletionChannel::of(channel);
  }
}

TEST_F(Disconnect, ErrorStateOfTheQueuePairIsOne) {
  Pair pair = connect_pair();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(device::QueuePair::of(pair.client->qp)->modify(attributes, IBV_QP_STATE), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

TEST_F(Disconnect, WithoutAConnectionIsInvalid) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  EXPECT_EQ(manager_->disconnect(client), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(manager_->disconnect(listener_), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(client);
}

TEST_F(Disconnect, BeforeEstablishGivesUpTheConnection) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  rdma_conn_param parameters{};
  parameters.qp_num = 1;  // will be made later
  ASSERT_EQ(manager_->connect(client, &parameters), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  make_queue_pair(server);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  expect(active_, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(manager_->disconnect(client), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  destroy(client);
  destroy(server);
}

}  // namespace
}  // namespace weft::cm
