// Ids that are destroyed at any moment, and many at once.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cm/fixture.h"
#include "cm/identifier.h"
#include "cm/plain_peer.h"

namespace weft::cm {
namespace {

class Lifetime : public CmTest {
 protected:
  std::shared_ptr<Identifier> kept_;  // until after the device
};

TEST_F(Lifetime, IdMayGoAtEveryStage) {
  listener_ = make_listener(passive_);
  destroy(make_id(active_));
  destroy(make_client(active_, listener_));

  const PlainListener silent;
  auto to = silent.address();
  rdma_cm_id* dialing = make_client_to(active_, reinterpret_cast<sockaddr*>(&to));
  make_queue_pair(dialing);
  ASSERT_EQ(manager_->connect(dialing, nullptr), 0);
  destroy(dialing);

  rdma_cm_id* shaking = make_client_to(active_, reinterpret_cast<sockaddr*>(&to));
  make_queue_pair(shaking);
  ASSERT_EQ(manager_->connect(shaking, nullptr), 0);
  PlainPeer gone = silent.accept();
  PlainPeer peer = silent.accept();
  EXPECT_FALSE(peer.receive_frame().empty());
  destroy(shaking);
  EXPECT_TRUE(peer.at_end());
  EXPECT_TRUE(quiet(active_));
}

TEST_F(Lifetime, ListenerTakesItsUnfetchedRequestsWithIt) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  pollfd entry{passive_->fd, POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, patience_ms), 1);
  PlainPeer half_open = PlainPeer::connect(ntohs(Manager::get_src_port(listener_)));
  destroy(listener_);
  listener_ = nullptr;
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  EXPECT_TRUE(half_open.at_end());
  EXPECT_TRUE(quiet(passive_));
  destroy(client);
}

TEST_F(Lifetime, FetchedRequestsOutliveTheirListener) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  destroy(listener_);
  listener_ = nullptr;
  make_queue_pair(server);
  ASSERT_EQ(manager_->accept(server, nullptr), 0);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  destroy(client);
  destroy(server);
}

// As with librdmacm: ibv_destroy_srq(3) refuses a queue that is in use.
TEST_F(Lifetime, ASharedQueueOutlivesItsIdWhileQueuePairsUseIt) {
  listener_ = make_listener(passive_);
  rdma_cm_id* owner = make_client(active_, listener_);
  rdma_cm_id* user = make_client(active_, listener_);
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  ASSERT_EQ(manager_->create_srq(owner, nullptr, &wanted), 0) << strerror(errno);
  ibv_srq* const queue = owner->srq;
  auto attributes = queue_pair_attributes();
  attributes.srq = queue;
  ASSERT_EQ(manager_->create_qp(user, nullptr, &attributes), 0) << strerror(errno);
  manager_->destroy_srq(owner);
  EXPECT_EQ(owner->srq, nullptr);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(queue, &receive, &bad), 0);
  manager_->destroy_qp(user);
  owner->srq = queue;  // so that it does not outlive the test
  manager_->destroy_srq(owner);
  EXPECT_EQ(owner->srq, nullptr);
  destroy(owner);
  destroy(user);
}

TEST_F(Lifetime, AcceptedIdMayGoBeforeItIsEstablished) {
  listener_ = make_listener(passive_);
  for (int i = 0; i < 20; ++i) {
    rdma_cm_id* client = make_client(active_, listener_);
    make_queue_pair(client);
    ASSERT_EQ(manager_->connect(client, nullptr), 0);
    rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    make_queue_pair(server);
    ASSERT_EQ(manager_->accept(server, nullptr), 0);
    destroy(server);
    destroy(client);
  }
  EXPECT_TRUE(quiet(active_));
  EXPECT_TRUE(quiet(passive_));
}

TEST_F(Lifetime, ConnectingIdsMayGoWhileTheyAreAnswered) {
  listener_ = make_listener(passive_);
  for (int i = 0; i < 50; ++i) {
    rdma_cm_id* client = make_client(active_, listener_);
    make_queue_pair(client);
    ASSERT_EQ(manager_->connect(client, nullptr), 0);
    rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    std::thread remover([&] { destroy(client); });
    manager_->reject(server, nullptr, 0);
    destroy(server);
    remover.join();
  }
  EXPECT_TRUE(quiet(active_));
}

TEST_F(Lifetime, ManyThreadsConnectAtOnce) {
  listener_ = make_listener(passive_);
  constexpr int threads = 4;
  constexpr int rounds = 25;
  std::thread server([&] {
    int ended = 0;
    while (ended < threads * rounds) {
      auto event = next(passive_);
      if (!event) return;
      rdma_cm_id* id = event->id;
      const rdma_cm_event_type type = event->event;
      event.reset();
      if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        make_queue_pair(id);
        EXPECT_EQ(manager_->accept(id, nullptr), 0);
      }
      // A client that disconnects at once may be gone before its first message is read.
      if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_CONNECT_ERROR) {
        ++ended;
        destroy(id);
      }
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < threads; ++i) {
    clients.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        rdma_cm_id* id = nullptr;
        ASSERT_EQ(manager_->create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
        auto to = ipv4("127.0.0.1", ntohs(Manager::get_src_port(listener_)));
        ASSERT_EQ(manager_->resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
        ASSERT_EQ(manager_->resolve_route(id, 1000), 0);
        make_queue_pair(id);
        ASSERT_EQ(manager_->connect(id, nullptr), 0) << strerror(errno);
        ASSERT_EQ(manager_->disconnect(id), 0);
        destroy(id);
      }
    });
  }
  for (auto& client : clients) client.join();
  server.join();
  EXPECT_EQ(manager_->counters().connections_active, 100U);
}

TEST_F(Lifetime, ManagerMayGoWithEverythingUnderWay) {
  Pair pair = connect_pair();
  rdma_cm_id* client = make_client(active_, listener_);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  for (rdma_cm_id* id : {pair.client, pair.server, client}) manager_->destroy_qp(id);
}

// As the thread of rdma_resolve_addrinfo(3) may keep it. The id has used the default domain.
TEST_F(Lifetime, AnIdMayBeKeptForLongerThanTheDevice) {
  listener_ = make_listener(passive_);
  rdma_cm_id* id = make_client(active_, listener_);
  ASSERT_NE(id->pd, nullptr);
  kept_ = Identifier::of(id)->shared_from_this();
  destroy(id);
}

TEST_F(Lifetime, ForkedChildHasNothingAndHurtsNobody) {
  Pair pair = connect_pair();
  rdma_cm_id* pending = make_id(active_);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    device_->abandon_after_fork();
    manager_->abandon_after_fork();
    bool good = manager_->destroy_id(pending) == 0;
    manager_->destroy_qp(pair.client);
    good = good && manager_->destroy_id(pair.client) == 0;
    rdma_cm_event* event = nullptr;
    good = good && manager_->get_cm_event(active_, &event) == -1;
    manager_->destroy_event_channel(active_);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(quiet(passive_)) << "the child's end of the connection is not the parent's";
  ASSERT_EQ(manager_->disconnect(pair.client), 0);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
  destroy(pending);
}

}  // namespace
}  // namespace weft::cm
