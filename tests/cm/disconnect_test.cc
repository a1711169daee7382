#include <array>
#include <cstring>
#include <string>

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
    device::CompletionChannel::of(channel)->release();
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

// What was sent before the call is proven by the peer, which works on meanwhile.
class ClosingStream : public Disconnect {
 protected:
  // No test may depend on how fast a busy machine is.
  explicit ClosingStream(device::SameHost same_host = device::SameHost::off) {
    settings_.same_host = same_host;
    settings_.disconnect.proofs_ns = std::uint64_t{patience_ms} * 1'000'000;
  }

  void post_send(rdma_cm_id* id, std::uint64_t wr_id) {
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(id->qp, &request, &bad), 0);
  }

  // In iwarp a Send without a receive ends the stream.
  [[nodiscard]] bool holds_sends() const { return device_->hold_bytes() > 0; }

  // Sends wait for their receives without end.
  Pair connect_patiently() {
    rdma_conn_param parameters{};
    parameters.rnr_retry_count = 7;
    return connect_pair(parameters, parameters);
  }

  static void expect_completion(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_status status) {
    const ibv_wc completion = completion_of(cq);
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_EQ(completion.status, status);
  }
};

std::string name_of(device::SameHost same_host) {
  if (same_host == device::SameHost::off) return "tcp";
  return same_host == device::SameHost::staged ? "staged" : "same_host";
}

// Of a queue pair on TCP, and of one that has left it.
class Closing : public ClosingStream, public testing::WithParamInterface<device::SameHost> {
 protected:
  Closing() : ClosingStream(GetParam()) {}
  void SetUp() override {
    ClosingStream::SetUp();
    if (settings_.same_host != GetParam()) GTEST_SKIP() << "about leaving TCP";
  }

  // Sends wait for their receives without end.
  Pair connect_patiently() {
    Pair pair = ClosingStream::connect_patiently();
    for (const rdma_cm_id* id : {pair.client, pair.server}) await_carrier(id);
    return pair;
  }

 private:
  static void await_carrier(const rdma_cm_id* id) {
    const std::string wanted = GetParam() == device::SameHost::off ? "tcp" : "same-host";
    const std::uint64_t end_ns = device::sys::now_ns() + std::uint64_t{patience_ms} * 1'000'000;
    const auto carrier = [id] {
      return std::string(device::QueuePair::of(id->qp)->carrier_note().name);
    };
    while (carrier() != wanted && device::sys::now_ns() < end_ns) device::sys::yield();
    EXPECT_EQ(carrier(), wanted);
  }
};

INSTANTIATE_TEST_SUITE_P(Carriers, Closing,
                         testing::Values(device::SameHost::off, device::SameHost::automatic,
                                         device::SameHost::staged),
                         [](const auto& carrier) { return name_of(carrier.param); });

TEST_P(Closing, ProvesWhatWasSentBefore) {
  for (const bool client_first : {true, false}) {
    Pair pair = connect_patiently();
    rdma_cm_id* const first = client_first ? pair.client : pair.server;
    rdma_cm_id* const second = client_first ? pair.server : pair.client;
    post_receive(first);
    post_receive(second);
    post_send(first, 1);
    ASSERT_EQ(manager_->disconnect(first), 0);
    EXPECT_EQ(first->qp->state, IBV_QPS_ERR);
    expect_completion(first->send_cq, 1, IBV_WC_SUCCESS);
    expect_completion(first->recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
    expect_completion(second->recv_cq, 5, IBV_WC_SUCCESS);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_TRUE(quiet(active_));
    EXPECT_TRUE(quiet(passive_));
    destroy(pair);
  }
}

TEST_P(Closing, KeepsTheOrderOfRequests) {
  if (!holds_sends()) GTEST_SKIP() << "a Send does not wait for its receive";
  Pair pair = connect_patiently();
  post_send(pair.client, 1);
  // Waits at the server for a receive.
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  post_send(pair.client, 2);
  post_receive(pair.client);
  expect_completion(pair.client->recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
  post_receive(pair.server);
  expect_completion(pair.client->send_cq, 1, IBV_WC_SUCCESS);
  expect_completion(pair.client->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
  expect_completion(pair.server->recv_cq, 5, IBV_WC_SUCCESS);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_TRUE(quiet(active_));
  EXPECT_TRUE(quiet(passive_));
  destroy(pair);
}

// Neither waits for a proof that the other one will not give.
TEST_P(Closing, MayBeClosedByBoth) {
  if (!holds_sends()) GTEST_SKIP() << "a Send does not wait for its receive";
  Pair pair = connect_patiently();
  post_send(pair.client, 1);
  post_send(pair.server, 2);
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  ASSERT_EQ(manager_->disconnect(pair.server), 0);
  expect_completion(pair.client->send_cq, 1, IBV_WC_WR_FLUSH_ERR);
  expect_completion(pair.server->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

TEST_P(Closing, IsOverWhenTheQueuePairIsDestroyed) {
  if (!holds_sends()) GTEST_SKIP() << "a Send does not wait for its receive";
  Pair pair = connect_patiently();
  post_send(pair.client, 1);
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  EXPECT_TRUE(quiet(passive_)) << "the server has no receive, so nothing is proven";
  manager_->destroy_qp(pair.client);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

TEST_P(Closing, IsOverWhenTheQueuePairIsReset) {
  if (!holds_sends()) GTEST_SKIP() << "a Send does not wait for its receive";
  Pair pair = connect_patiently();
  post_send(pair.client, 1);
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(device::QueuePair::of(pair.client->qp)->modify(attributes, IBV_QP_STATE), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(pair.client->send_cq, 1, &completion), 0);
  destroy(pair);
}

class BrieflyClosing : public Closing {
 protected:
  BrieflyClosing() { settings_.disconnect.proofs_ns = 1'000'000; }
};

INSTANTIATE_TEST_SUITE_P(Carriers, BrieflyClosing,
                         testing::Values(device::SameHost::off, device::SameHost::automatic,
                                         device::SameHost::staged),
                         [](const auto& carrier) { return name_of(carrier.param); });

TEST_P(BrieflyClosing, FlushesWhatIsNotProvenInTime) {
  if (!holds_sends()) GTEST_SKIP() << "a Send does not wait for its receive";
  Pair pair = connect_patiently();
  post_send(pair.client, 1);
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  expect_completion(pair.client->send_cq, 1, IBV_WC_WR_FLUSH_ERR);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

// The ends of a connection within a host agree to leave TCP when it is established, and requests
// wait meanwhile.
class ClosingWhileAgreeing : public ClosingStream {
 protected:
  ClosingWhileAgreeing() : ClosingStream(device::SameHost::automatic) {}
};

TEST_F(ClosingWhileAgreeing, ProvesWhatWasSentBefore) {
  constexpr int times = 50;  // the agreement may be reached before the call
  for (int i = 0; i < times; ++i) {
    Pair pair = connect_patiently();
    rdma_cm_id* const first = i % 2 == 0 ? pair.client : pair.server;
    rdma_cm_id* const second = i % 2 == 0 ? pair.server : pair.client;
    post_receive(second);
    post_send(first, 1);
    ASSERT_EQ(manager_->disconnect(first), 0);
    post_send(first, 2);
    expect_completion(first->send_cq, 1, IBV_WC_SUCCESS);
    expect_completion(first->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_completion(second->recv_cq, 5, IBV_WC_SUCCESS);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
    destroy(pair);
  }
}

// The end by the peer is reported behind the completions of what arrived before it.
class EndByThePeer : public ClosingStream {
 protected:
  // Longer than any test waits for an event.
  EndByThePeer() { settings_.disconnect.unpolled_ns = std::uint64_t{patience_ms} * 10'000'000; }

  // The server's program has a message that it has not polled, and the client has disconnected.
  Pair end_pair() {
    Pair pair = connect_pair();
    post_receive(pair.server);
    post_send(pair.client, 1);
    expect_completion(pair.client->send_cq, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(manager_->disconnect(pair.client), 0);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    const std::uint64_t end_ns = device::sys::now_ns() + std::uint64_t{patience_ms} * 1'000'000;
    while (state_of(pair.server) != IBV_QPS_ERR && device::sys::now_ns() < end_ns) {
      device::sys::yield();
    }
    EXPECT_EQ(state_of(pair.server), IBV_QPS_ERR);
    return pair;
  }
  static ibv_qp_state state_of(const rdma_cm_id* id) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    device::QueuePair::of(id->qp)->query(attributes, initial);
    return attributes.qp_state;
  }
};

TEST_F(EndByThePeer, IsReportedWhenTheLastMessageIsPolled) {
  Pair pair = end_pair();
  EXPECT_TRUE(quiet(passive_));
  expect_completion(pair.server->recv_cq, 5, IBV_WC_SUCCESS);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

TEST_F(EndByThePeer, IsReportedWhenTheProgramDisconnectsAsWell) {
  Pair pair = end_pair();
  ASSERT_EQ(manager_->disconnect(pair.server), 0);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
  EXPECT_TRUE(quiet(passive_));
}

TEST_F(EndByThePeer, IsReportedWhenTheQueuePairIsDestroyed) {
  Pair pair = end_pair();
  manager_->destroy_qp(pair.server);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

class HastyEndByThePeer : public EndByThePeer {
 protected:
  HastyEndByThePeer() { settings_.disconnect.unpolled_ns = 5'000'000; }
};

TEST_F(HastyEndByThePeer, IsReportedInTimeToProgramsThatDoNotPoll) {
  Pair pair = end_pair();
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  expect_completion(pair.server->recv_cq, 5, IBV_WC_SUCCESS);
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
