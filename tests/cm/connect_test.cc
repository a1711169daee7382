#include <cstring>

#include "cm/fixture.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::cm {
namespace {

class Connect : public CmTest {};

rdma_conn_param with_data(const std::string& data, std::uint8_t resources = 1,
                          std::uint8_t depth = 1) {
  rdma_conn_param parameters{};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.responder_resources = resources;
  parameters.initiator_depth = depth;
  return parameters;
}

TEST_F(Connect, EstablishesBothSides) {
  Pair pair = connect_pair();
  EXPECT_EQ(pair.client->qp->state, IBV_QPS_RTS);
  EXPECT_EQ(pair.server->qp->state, IBV_QPS_RTS);
  EXPECT_TRUE(quiet(active_));
  EXPECT_TRUE(quiet(passive_));
  const Counters counters = manager_->counters();
  EXPECT_EQ(counters.connections_active, 1U);
  EXPECT_EQ(counters.connections_passive, 1U);
  EXPECT_EQ(counters.unacknowledged, 0U);
  destroy(pair);
}

TEST_F(Connect, CarriesPrivateDataOfAnyLengthBothWays) {
  for (const std::size_t length : {0U, 1U, 3U, 196U, 252U}) {
    const std::string question(length, 'q');
    const std::string answer(252 - length, 'a');
    Pair pair = connect_pair(with_data(question), with_data(answer));
    EXPECT_EQ(pair.client_data, question);
    EXPECT_EQ(pair.server_data, answer);
    destroy(pair);
  }
}

TEST_F(Connect, RefusesPrivateDataThatSomePeersWouldNotTake) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  const std::string data(253, 'x');
  auto parameters = with_data(data);
  EXPECT_EQ(manager_->connect(client, &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(client);
}

TEST_F(Connect, NewIdIsCompleteWhenTheRequestIsDelivered) {
  int mark = 0;
  listener_ = make_id(passive_, &mark);
  auto address = ipv4("127.0.0.1", 0);
  ASSERT_EQ(manager_->bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)), 0);
  ASSERT_EQ(manager_->listen(listener_, 5), 0);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(request);
  rdma_cm_id* server = request->id;
  EXPECT_NE(server, listener_);
  EXPECT_EQ(server->context, &mark);
  EXPECT_EQ(server->channel, passive_);
  EXPECT_EQ(server->verbs, context_->verbs());
  EXPECT_NE(server->pd, nullptr);
  EXPECT_EQ(server->port_num, 1);
  EXPECT_EQ(server->ps, RDMA_PS_TCP);
  EXPECT_EQ(server->qp_type, IBV_QPT_RC);
  EXPECT_EQ(server->qp, nullptr);
  EXPECT_EQ(Manager::get_src_port(server), Manager::get_src_port(listener_));
  EXPECT_EQ(Manager::get_dst_port(server), Manager::get_src_port(client));
  EXPECT_EQ(Manager::get_dst_port(client), Manager::get_src_port(listener_));
  EXPECT_EQ(rdma_get_peer_addr(server)->sa_family, AF_INET);
  EXPECT_EQ(manager_->reject(server, nullptr, 0), 0);
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  destroy(server);
  destroy(client);
}

TEST_F(Connect, ReadDepthsAreSeenFromTheOtherSideAndWithoutTheDevicesOwn) {
  rdma_conn_param client{};
  client.responder_resources = 3;
  client.initiator_depth = 7;
  rdma_conn_param server{};
  server.responder_resources = 5;
  server.initiator_depth = 2;
  Pair pair = connect_pair(client, server);
  EXPECT_EQ(pair.request.responder_resources, 7);
  EXPECT_EQ(pair.request.initiator_depth, 3);
  // The responder raises its IRD to the initiator's ORD (RFC 6581 §9.1).
  EXPECT_EQ(pair.client_established.initiator_depth, 7);
  EXPECT_EQ(pair.client_established.responder_resources, 3);
  EXPECT_EQ(pair.server_established.initiator_depth, 2);
  EXPECT_EQ(pair.server_established.responder_resources, 7);
  destroy(pair);
}

// rdma_accept(3): programs pass on the parameters of the event. An iWARP adapter names no retries.
TEST_F(Connect, TheParametersOfTheEventsCanBePassedOn) {
  Pair pair = connect_pair();
  const int retries = device_->is_roce() ? 7 : 0;
  EXPECT_EQ(pair.request.rnr_retry_count, retries);
  EXPECT_EQ(pair.request.retry_count, retries);
  EXPECT_EQ(pair.client_established.rnr_retry_count, retries);
  destroy(pair);
}

TEST_F(Connect, DepthZeroStaysZeroAndIsAcknowledgedAllTheSame) {
  Pair pair = connect_pair();
  EXPECT_EQ(pair.request.responder_resources, 0);
  EXPECT_EQ(pair.request.initiator_depth, 0);
  EXPECT_EQ(pair.client_established.initiator_depth, 0);
  EXPECT_EQ(manager_->counters().unacknowledged, 0U);
  destroy(pair);
}

TEST_F(Connect, DepthsBeyondTheDeviceAreRefused) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  rdma_conn_param parameters{};
  parameters.initiator_depth = 128;
  EXPECT_EQ(manager_->connect(client, &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
  parameters.responder_resources = RDMA_MAX_RESP_RES;
  EXPECT_EQ(manager_->connect(client, &parameters), 0);
  const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request->param.conn.responder_resources, 127);
  EXPECT_EQ(request->param.conn.initiator_depth, 127);
  destroy(request->id);
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  destroy(client);
}

TEST_F(Connect, AcceptWithoutParametersTakesThoseOfTheRequest) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  auto parameters = with_data("", 4, 6);
  ASSERT_EQ(manager_->connect(client, &parameters), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  make_queue_pair(server);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  if (const auto established = expect(active_, RDMA_CM_EVENT_ESTABLISHED)) {
    EXPECT_EQ(established->param.conn.initiator_depth, 6);
    EXPECT_EQ(established->param.conn.responder_resources, 4);
  }
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  destroy(client);
  destroy(server);
}

TEST_F(Connect, WorksOverIpv6) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no IPv6 loopback address";
  listener_ = make_listener(passive_, AF_INET6);
  Pair pair = connect_pair();
  EXPECT_EQ(rdma_get_peer_addr(pair.server)->sa_family, AF_INET6);
  EXPECT_EQ(rdma_get_local_addr(pair.client)->sa_family, AF_INET6);
  destroy(pair);
}

TEST_F(Connect, RejectionCarriesPrivateData) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  {
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    const std::string why = "not today";
    EXPECT_EQ(manager_->reject(request->id, why.data(), static_cast<std::uint8_t>(why.size())), 0);
    EXPECT_EQ(manager_->reject(request->id, nullptr, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    destroy(request->id);
  }
  if (const auto rejected = expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED)) {
    const auto& conn = rejected->param.conn;
    EXPECT_EQ(std::string(static_cast<const char*>(conn.private_data), conn.private_data_len),
              "not today");
  }
  EXPECT_EQ(client->qp->state, IBV_QPS_ERR);
  destroy(client);
}

TEST_F(Connect, RefusedWhereNobodyListens) {
  rdma_cm_id* listener = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener);
  make_queue_pair(client);
  destroy(listener);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  EXPECT_TRUE(quiet(active_));
  destroy(client);
}

TEST_F(Connect, OneListenerServesManyRequestsInOrder) {
  listener_ = make_listener(passive_, AF_INET, 2);
  std::vector<rdma_cm_id*> clients;
  for (int i = 0; i < 8; ++i) {
    rdma_cm_id* client = make_client(active_, listener_);
    make_queue_pair(client);
    auto parameters = with_data("");
    ASSERT_EQ(manager_->connect(client, &parameters), 0);
    clients.push_back(client);
  }
  std::vector<rdma_cm_id*> servers;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_TRUE(request);
    servers.push_back(request->id);
  }
  for (rdma_cm_id* server : servers) {
    make_queue_pair(server);
    ASSERT_EQ(manager_->accept(server, nullptr), 0);
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    expect(active_, RDMA_CM_EVENT_ESTABLISHED);
    expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  }
  for (rdma_cm_id* id : clients) destroy(id);
  for (rdma_cm_id* id : servers) destroy(id);
}

TEST_F(Connect, QueuePairsOfTheProgramAreNamedByTheirNumber) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  ibv_pd* domain = client->pd;
  device::CompletionQueue queue(*context_, 64, nullptr, nullptr);
  auto attributes = queue_pair_attributes();
  attributes.send_cq = attributes.recv_cq = queue.verbs();
  const auto ours = device::QueuePair::create(*context_, domain, attributes);
  const auto theirs = device::QueuePair::create(*context_, domain, attributes);
  ASSERT_TRUE(ours && theirs);

  rdma_conn_param parameters{};
  parameters.qp_num = ours->verbs()->qp_num;
  ASSERT_EQ(manager_->connect(client, &parameters), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = state;
    ASSERT_EQ(manager_->init_qp_attr(server, &attr, &mask), 0);
    EXPECT_EQ(theirs->modify(attr, mask), 0);
  }
  parameters.qp_num = theirs->verbs()->qp_num;
  ASSERT_EQ(manager_->accept(server, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_TRUE(quiet(passive_)) << "established before rdma_establish";
  ASSERT_EQ(manager_->establish(client), 0);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_TRUE(quiet(active_));
  EXPECT_EQ(ours->verbs()->state, IBV_QPS_RTS);

  ASSERT_EQ(manager_->disconnect(client), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  ours->destroy();
  theirs->destroy();
  destroy(client);
  destroy(server);
}

// A queue pair of the program's own is taken to RTS before the stream exists: requests that are
// posted meanwhile are sent when it does.
TEST_F(Connect, OwnQueuePairsMayPostBeforeTheStreamIsThere) {
  if (!device_->is_roce()) GTEST_SKIP() << "an iWARP queue pair is in RTS with its stream only";
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  device::CompletionQueue queue(*context_, 64, nullptr, nullptr);
  const auto domain = std::unique_ptr<device::ProtectionDomain>(context_->allocate_domain());
  auto attributes = queue_pair_attributes();
  attributes.send_cq = attributes.recv_cq = queue.verbs();
  const auto theirs = device::QueuePair::create(*context_, &domain->pd, attributes);
  ASSERT_TRUE(theirs);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = state;
    ASSERT_EQ(manager_->init_qp_attr(server, &attr, &mask), 0);
    ASSERT_EQ(theirs->modify(attr, mask), 0);
  }
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.wr_id = 77;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(theirs->post_send(&request, &bad), 0);
  rdma_conn_param parameters{};
  parameters.qp_num = theirs->verbs()->qp_num;
  ASSERT_EQ(manager_->accept(server, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  const ibv_wc completion = completion_of(queue.verbs());
  EXPECT_EQ(completion.wr_id, 77U);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  theirs->destroy();
  destroy(client);
  destroy(server);
}

// InfiniBand's connection management knows queue pairs by number only. Programs connect ids with
// invented numbers to measure it (cmtime).
class WithoutQueuePairs : public Connect {
 protected:
  // Numbers of queue pairs that do not exist.
  static constexpr std::uint32_t number = 0xABC000;

  void SetUp() override {
    Connect::SetUp();
    if (!device_->is_roce()) GTEST_SKIP() << "iWARP has no numbers of queue pairs";
    listener_ = make_listener(passive_);
    client_ = make_client(active_, listener_);
  }

  rdma_cm_id* accept_request() {
    rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    const std::string data = "pong";
    auto parameters = with_data(data, 0, 0);
    parameters.qp_num = number + 1;
    EXPECT_EQ(manager_->accept(server, &parameters), 0) << strerror(errno);
    return server;
  }

  void connect() {
    const std::string data = "ping";
    auto parameters = with_data(data, 0, 0);
    parameters.qp_num = number;
    ASSERT_EQ(manager_->connect(client_, &parameters), 0) << strerror(errno);
  }

  rdma_cm_id* client_ = nullptr;
};

TEST_F(WithoutQueuePairs, IdsAreConnectedAndDisconnected) {
  for (const bool client_first : {true, false}) {
    if (!client_first) client_ = make_client(active_, listener_);
    connect();
    rdma_cm_id* server = accept_request();
    EXPECT_EQ(expect(active_, RDMA_CM_EVENT_CONNECT_RESPONSE)->param.conn.private_data_len, 4);
    EXPECT_TRUE(quiet(passive_)) << "established before rdma_establish";
    ASSERT_EQ(manager_->establish(client_), 0) << strerror(errno);
    expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(manager_->disconnect(client_first ? client_ : server), 0);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(manager_->disconnect(client_first ? server : client_), 0);
    destroy(client_);
    destroy(server);
    EXPECT_TRUE(quiet(active_));
    EXPECT_TRUE(quiet(passive_));
  }
}

TEST_F(WithoutQueuePairs, TheDestructionOfAnIdIsAnEnd) {
  connect();
  rdma_cm_id* server = accept_request();
  expect(active_, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(manager_->establish(client_), 0);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  destroy(client_);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(server);
}

// What an adapter does with packets for a number that no queue pair has: it takes none.
TEST_F(WithoutQueuePairs, AQueuePairReachesNothing) {
  // The third connection between two processes of one host is made without TCP.
  for (int turn = 0; turn < 3; ++turn) {
    make_queue_pair(client_);
    ASSERT_EQ(manager_->connect(client_, nullptr), 0);
    rdma_cm_id* server = accept_request();
    expect(active_, RDMA_CM_EVENT_ESTABLISHED);
    expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(client_->qp, &request, &bad), 0);
    EXPECT_NE(completion_of(client_->send_cq).status, IBV_WC_SUCCESS);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
    destroy(client_);
    destroy(server);
    client_ = make_client(active_, listener_);
  }
  destroy(client_);
}

// A peer's host that does not answer for a while is waited for as on adapters, also in the
// personality iwarp, where no program sets these attributes. rdma_accept(3) ignores retry_count.
TEST_F(Connect, QueuePairsHaveTheAttributesOfTheConnection) {
  rdma_conn_param parameters{};
  parameters.retry_count = 5;
  parameters.initiator_depth = 3;
  Pair pair = connect_pair(parameters, parameters);
  for (rdma_cm_id* id : {pair.client, pair.server}) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    device::QueuePair::of(id->qp)->query(attributes, initial);
    EXPECT_EQ(attributes.timeout, 18);
    EXPECT_EQ(attributes.retry_cnt, id == pair.client ? 5 : 7);
    if (!device_->is_roce()) continue;
    EXPECT_EQ(attributes.max_rd_atomic, 3);
    EXPECT_GE(attributes.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(attributes.rnr_retry, 7);
    EXPECT_EQ(attributes.ah_attr.is_global, 1);
    EXPECT_EQ(std::memcmp(attributes.ah_attr.grh.dgid.raw, id->route.addr.addr.ibaddr.dgid.raw,
                          sizeof(ibv_gid)),
              0);
  }
  destroy(pair);
}

TEST_F(Connect, UnknownQueuePairNumberIsRefused) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  EXPECT_EQ(manager_->connect(client, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  rdma_conn_param parameters{};
  parameters.qp_num = 0xFFFFFF;
  EXPECT_EQ(manager_->accept(server, &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(manager_->accept(server, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(server);
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  destroy(client);
}

TEST_F(Connect, CallsOutOfOrderAreInvalid) {
  rdma_cm_id* id = make_id(active_);
  EXPECT_EQ(manager_->resolve_route(id, 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  auto attributes = queue_pair_attributes();
  EXPECT_EQ(manager_->create_qp(id, nullptr, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(manager_->reject(id, nullptr, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(manager_->disconnect(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(manager_->establish(id), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(id);
}

}  // namespace
}  // namespace weft::cm
