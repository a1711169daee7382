// The data path over connections that the manager made.
#include <rdma/rdma_verbs.h>

#include <cstring>
#include <thread>

#include "cm/fixture.h"
#include "device/queue_pair/queue_pair.h"
#include "device/statistics_registry.h"

namespace weft::cm {
namespace {

constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

class Data : public CmTest {
 protected:
  static constexpr std::size_t bytes = 100'000;  // several FPDUs
  static constexpr std::uint32_t immediate = 0x01020304;

  void connect(rdma_conn_param parameters = {}) {
    pair_ = connect_pair(parameters, parameters);
    auto* domain = device::ProtectionDomain::of(pair_.client->pd);
    near_.assign(bytes, 'n');
    far_.assign(bytes, 'f');
    near_region_ = context_->register_memory(*domain, near_.data(), bytes, address(near_), access);
    far_region_ = context_->register_memory(*domain, far_.data(), bytes, address(far_), access);
    ASSERT_TRUE(near_region_ && far_region_);
  }

  void TearDown() override {
    if (pair_.client) destroy(pair_);
    if (near_region_) context_->deregister_memory(near_region_);
    if (far_region_) context_->deregister_memory(far_region_);
    CmTest::TearDown();
  }

  static std::uint64_t address(const std::string& at) {
    return reinterpret_cast<std::uint64_t>(at.data());
  }

  int post(rdma_cm_id* id, ibv_wr_opcode opcode, const std::string& from, ibv_mr* region,
           std::size_t length, const std::string* to = nullptr, ibv_mr* remote = nullptr) {
    ibv_sge sge{address(from), static_cast<std::uint32_t>(length), region->lkey};
    ibv_send_wr request{};
    request.wr_id = ++posted_;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = immediate;
    if (to) request.wr.rdma = {address(*to), remote->rkey};
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(id->qp, &request, &bad);
  }

  int post_receive(rdma_cm_id* id, const std::string& into, ibv_mr* region) {
    ibv_sge sge{address(into), static_cast<std::uint32_t>(into.size()), region->lkey};
    ibv_recv_wr request{};
    request.wr_id = 77;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(id->qp, &request, &bad);
  }

  Pair pair_;
  std::string near_;
  std::string far_;
  ibv_mr* near_region_ = nullptr;
  ibv_mr* far_region_ = nullptr;
  std::uint64_t posted_ = 0;
};

// The sender has seen a success, and the program at the receiver has not.
TEST_F(Data, AReceiveThatIsDestroyedUnpolledIsCounted) {
  connect();
  ASSERT_EQ(post_receive(pair_.server, far_, far_region_), 0);
  ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, 8), 0);
  EXPECT_EQ(completion_of(pair_.client->qp->send_cq).status, IBV_WC_SUCCESS);
  destroy(pair_);
  pair_ = {};
  const QueuePairCounters all = device_->statistics_registry().totals().queue_pairs;
  EXPECT_EQ(all.unpolled_receives, 1U);
  EXPECT_EQ(all.unreceived.operations, 0U);
}

class DataOverTcp : public Data {
 protected:
  DataOverTcp() { settings_.same_host = device::SameHost::off; }
};

// Within a host such a Send waits at the sender.
TEST_F(DataOverTcp, ASendThatFindsNoReceiveBeforeTheEndIsCountedAndFails) {
  if (settings_.personality == device::Personality::iwarp) GTEST_SKIP() << "it holds no Sends";
  connect();
  const auto server = device::QueuePair::of(pair_.server->qp);
  ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, 8), 0);
  while (server->counters().rnr_waits == 0) std::this_thread::yield();
  ASSERT_EQ(manager_->disconnect(pair_.server), 0);
  EXPECT_NE(completion_of(pair_.client->qp->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(server->counters().unreceived.operations, 1U);
  EXPECT_EQ(server->counters().unreceived.bytes, 8U);
}

TEST_F(Data, SendArrivesInPostedReceive) {
  connect();
  ASSERT_EQ(post_receive(pair_.server, far_, far_region_), 0);
  ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, bytes), 0);
  const ibv_wc received = completion_of(pair_.server->recv_cq);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.wr_id, 77U);
  EXPECT_EQ(received.byte_len, bytes);
  EXPECT_EQ(completion_of(pair_.client->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(far_, near_);
}

TEST_F(Data, PassiveSideMaySpeakFirst) {
  connect();
  ASSERT_EQ(post_receive(pair_.client, near_, near_region_), 0);
  ASSERT_EQ(post(pair_.server, IBV_WR_SEND, far_, far_region_, bytes), 0);
  EXPECT_EQ(completion_of(pair_.client->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion_of(pair_.server->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(near_, far_);
}

TEST_F(Data, SendWithImmediateBringsItFromEitherSide) {
  connect();
  ASSERT_EQ(post_receive(pair_.server, far_, far_region_), 0);
  ASSERT_EQ(post(pair_.client, IBV_WR_SEND_WITH_IMM, near_, near_region_, bytes), 0);
  const ibv_wc received = completion_of(pair_.server->recv_cq);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, bytes);
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(received.imm_data, immediate);
  EXPECT_EQ(far_, near_);
  const ibv_wc sent = completion_of(pair_.client->send_cq);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  ASSERT_EQ(post_receive(pair_.client, near_, near_region_), 0);
  ASSERT_EQ(post(pair_.server, IBV_WR_SEND_WITH_IMM, far_, far_region_, 10), 0);
  EXPECT_EQ(completion_of(pair_.client->recv_cq).imm_data, immediate);
}

TEST_F(Data, CompletedWriteIsInThePeersMemory) {
  connect();  // no reads asked for: the device has its own for this
  for (char round = 'a'; round <= 'z'; ++round) {
    near_.assign(bytes, round);
    ASSERT_EQ(post(pair_.client, IBV_WR_RDMA_WRITE, near_, near_region_, bytes, &far_, far_region_),
              0);
    ASSERT_EQ(completion_of(pair_.client->send_cq).status, IBV_WC_SUCCESS);
    ASSERT_EQ(far_, near_);
  }
}

TEST_F(Data, ReadFetchesThePeersMemory) {
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 2;
  connect(parameters);
  ASSERT_EQ(post(pair_.server, IBV_WR_RDMA_READ, far_, far_region_, bytes, &near_, near_region_),
            0);
  EXPECT_EQ(completion_of(pair_.server->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(near_, far_);
}

TEST_F(Data, RefusedWriteFailsAndDisconnectsBoth) {
  connect();
  ibv_mr wrong = *far_region_;
  wrong.rkey ^= 0x5A00;
  ASSERT_EQ(post(pair_.client, IBV_WR_RDMA_WRITE, near_, near_region_, 8, &far_, &wrong), 0);
  EXPECT_EQ(completion_of(pair_.client->send_cq).status, IBV_WC_REM_ACCESS_ERR);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(pair_.client->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(pair_.server->qp->state, IBV_QPS_ERR);
  EXPECT_EQ(far_.find('n'), std::string::npos);
}

TEST_F(Data, QueuesOfTheIdWorkWithItsInlineFunctions) {
  connect();
  ASSERT_NE(pair_.server->recv_cq_channel, nullptr);
  ASSERT_NE(pair_.client->send_cq_channel, nullptr);
  ASSERT_EQ(rdma_post_recv(pair_.server, nullptr, far_.data(), bytes, far_region_), 0);
  ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, 5), 0);
  pollfd entry{pair_.server->recv_cq_channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, patience_ms), 1) << "armed from the start";
  EXPECT_EQ(completion_of(pair_.server->recv_cq).byte_len, 5U);
}

class SlowReceiver : public Data {
 protected:
  SlowReceiver() { settings_.same_host = device::SameHost::off; }

  // More than the server can hold, and no receive for any of it. Returns when the client has
  // stopped sending, or when something has completed.
  void send_more_than_is_held() {
    rdma_conn_param parameters{};
    parameters.rnr_retry_count = parameters.retry_count = 7;  // without end
    connect(parameters);
    for (int i = 0; i < sends; ++i) {
      ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, bytes), 0);
    }
    while (early_ == 0 && device::QueuePair::of(pair_.client->qp)->counters().credit_waits == 0) {
      ibv_wc completion{};
      early_ = ibv_poll_cq(pair_.client->send_cq, 1, &completion);
    }
  }

  static constexpr int sends = 16;
  int early_ = 0;
};

// As on adapters with rnr_retry 7, however late the receives are. Without control words the server
// ends the stream when its hold is full.
TEST_F(SlowReceiver, SendsWaitForReceivesWithoutEnd) {
  if (settings_.personality == device::Personality::iwarp) GTEST_SKIP() << "it holds no Sends";
  send_more_than_is_held();
  ASSERT_EQ(early_, 0) << "no receive was posted";
  for (int i = 0; i < sends; ++i) {
    far_.assign(bytes, 'f');
    ASSERT_EQ(post_receive(pair_.server, far_, far_region_), 0);
    ASSERT_EQ(completion_of(pair_.server->recv_cq).status, IBV_WC_SUCCESS);
    ASSERT_EQ(far_, near_);
  }
  for (int i = 0; i < sends; ++i) {
    ASSERT_EQ(completion_of(pair_.client->send_cq).status, IBV_WC_SUCCESS);
  }
}

class Unacknowledged : public Data {
 protected:
  Unacknowledged() { settings_.acknowledge = false; }
};

TEST_F(Unacknowledged, CompletesAsWell) {
  connect();
  ASSERT_EQ(post_receive(pair_.server, far_, far_region_), 0);
  ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, bytes), 0);
  EXPECT_EQ(completion_of(pair_.client->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion_of(pair_.server->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(manager_->counters().unacknowledged, 0U) << "nobody asked for it";
}

class UnacknowledgedOverTcp : public Unacknowledged {
 protected:
  UnacknowledgedOverTcp() { settings_.same_host = device::SameHost::off; }
};

// The peer's hold is known to have room without asking for it, also where the program allows no
// reads at all: each Send would wait for a round trip otherwise.
TEST_F(UnacknowledgedOverTcp, SendsAskForNoGrant) {
  connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(post_receive(pair_.server, far_, far_region_), 0);
    ASSERT_EQ(post(pair_.client, IBV_WR_SEND, near_, near_region_, bytes), 0);
    EXPECT_EQ(completion_of(pair_.client->send_cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion_of(pair_.server->recv_cq).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(device::QueuePair::of(pair_.client->qp)->counters().credit_waits, 0U);
}

}  // namespace
}  // namespace weft::cm
