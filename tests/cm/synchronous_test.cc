// Ids without a channel: every call waits for its event.
#include <cstring>
#include <thread>

#include "cm/fixture.h"

namespace weft::cm {
namespace {

class Synchronous : public CmTest {
 protected:
  using Info = std::unique_ptr<rdma_addrinfo, void (*)(rdma_addrinfo*)>;

  Info info(const char* node, std::uint16_t port, bool passive) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    if (passive) hints.ai_flags = RAI_PASSIVE;
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(manager_->getaddrinfo(node, std::to_string(port).c_str(), &hints, &found), 0);
    return {found, &cm::freeaddrinfo};
  }

  rdma_cm_id* passive_endpoint() {
    auto attributes = queue_pair_attributes();
    attributes.qp_type = static_cast<ibv_qp_type>(0);  // as rdma_server leaves it
    rdma_cm_id* listener = nullptr;
    const auto where = info("127.0.0.1", 0, true);
    EXPECT_EQ(manager_->create_ep(&listener, where.get(), nullptr, &attributes), 0)
        << strerror(errno);
    EXPECT_EQ(manager_->listen(listener, 0), 0);
    return listener;
  }

  rdma_cm_id* active_endpoint(rdma_cm_id* listener) {
    auto attributes = queue_pair_attributes();
    attributes.qp_type = static_cast<ibv_qp_type>(0);
    rdma_cm_id* client = nullptr;
    const auto where = info("127.0.0.1", ntohs(Manager::get_src_port(listener)), false);
    EXPECT_EQ(manager_->create_ep(&client, where.get(), nullptr, &attributes), 0)
        << strerror(errno);
    EXPECT_EQ(attributes.qp_type, IBV_QPT_RC);
    return client;
  }
};

// The program gets no id that it could destroy, so the request is rejected.
TEST_F(Synchronous, RequestWithoutQueuePairIsRejected) {
  auto attributes = queue_pair_attributes();
  attributes.cap.max_send_wr = device::limits::max_work_requests + 1;
  rdma_cm_id* listener = nullptr;
  const auto where = info("127.0.0.1", 0, true);
  ASSERT_EQ(manager_->create_ep(&listener, where.get(), nullptr, &attributes), 0);
  ASSERT_EQ(manager_->listen(listener, 0), 0);
  rdma_cm_id* client = make_client(active_, listener);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(manager_->get_request(listener, &id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(id, nullptr);
  EXPECT_EQ(listener->event, nullptr);
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  destroy(client);
  manager_->destroy_ep(listener);
}

TEST_F(Synchronous, EndpointsConnectAndDisconnect) {
  rdma_cm_id* listener = passive_endpoint();
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(manager_->get_request(listener, &id), 0) << strerror(errno);
    ASSERT_NE(id->qp, nullptr);
    EXPECT_NE(id->channel, listener->channel);
    ASSERT_NE(id->event, nullptr);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_EQ(manager_->accept(id, nullptr), 0) << strerror(errno);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(manager_->disconnect(id), 0);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(manager_->disconnect(id), 0);
    manager_->destroy_ep(id);
  });
  rdma_cm_id* client = active_endpoint(listener);
  EXPECT_NE(client->qp, nullptr);
  ASSERT_EQ(manager_->connect(client, nullptr), 0) << strerror(errno);
  EXPECT_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(manager_->disconnect(client), 0);
  EXPECT_EQ(client->event->event, RDMA_CM_EVENT_DISCONNECTED);
  manager_->destroy_ep(client);
  server.join();
  manager_->destroy_ep(listener);
}

TEST_F(Synchronous, RejectionIsRefusal) {
  rdma_cm_id* listener = passive_endpoint();
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(manager_->get_request(listener, &id), 0);
    EXPECT_EQ(manager_->reject(id, "no", 2), 0);
    manager_->destroy_ep(id);
  });
  rdma_cm_id* client = active_endpoint(listener);
  EXPECT_EQ(manager_->connect(client, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  ASSERT_EQ(client->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(client->event->param.conn.private_data_len, 2);
  EXPECT_EQ(manager_->disconnect(client), 0) << "nothing to wait for";
  manager_->destroy_ep(client);
  server.join();
  manager_->destroy_ep(listener);
}

TEST_F(Synchronous, NobodyListeningIsRefusal) {
  rdma_cm_id* listener = passive_endpoint();
  rdma_cm_id* client = active_endpoint(listener);
  manager_->destroy_ep(listener);
  EXPECT_EQ(manager_->connect(client, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  manager_->destroy_ep(client);
}

TEST_F(Synchronous, EndpointWithoutQueuePairIsJustAnId) {
  rdma_cm_id* listener = nullptr;
  const auto here = info("127.0.0.1", 0, true);
  ASSERT_EQ(manager_->create_ep(&listener, here.get(), nullptr, nullptr), 0);
  ASSERT_EQ(manager_->listen(listener, 0), 0);
  rdma_cm_id* client = active_endpoint(listener);
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(manager_->get_request(listener, &id), 0);
    EXPECT_EQ(id->qp, nullptr);
    manager_->destroy_ep(id);
  });
  EXPECT_EQ(manager_->connect(client, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  server.join();
  manager_->destroy_ep(client);
  manager_->destroy_ep(listener);
}

TEST_F(Synchronous, EndpointThatCannotBeMadeLeavesNothing) {
  const auto where = info("198.51.100.7", 0, true);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(manager_->create_ep(&id, where.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  EXPECT_EQ(id, nullptr);
  where->ai_qp_type = IBV_QPT_UD;
  EXPECT_EQ(manager_->create_ep(&id, where.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Synchronous, GetRequestNeedsASynchronousListener) {
  listener_ = make_listener(passive_);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(manager_->get_request(listener_, &id), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Synchronous, PrivateDataOfTheEndpointGoesInFront) {
  rdma_cm_id* listener = passive_endpoint();
  auto where = info("127.0.0.1", ntohs(Manager::get_src_port(listener)), false);
  where->ai_connect = strdup("head");
  where->ai_connect_len = 4;
  auto attributes = queue_pair_attributes();
  rdma_cm_id* client = nullptr;
  ASSERT_EQ(manager_->create_ep(&client, where.get(), nullptr, &attributes), 0);
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(manager_->get_request(listener, &id), 0);
    const auto& conn = id->event->param.conn;
    EXPECT_EQ(std::string(static_cast<const char*>(conn.private_data), conn.private_data_len),
              "headtail");
    manager_->destroy_ep(id);
  });
  rdma_conn_param parameters{};
  parameters.private_data = "tail";
  parameters.private_data_len = 4;
  EXPECT_EQ(manager_->connect(client, &parameters), -1);
  server.join();
  manager_->destroy_ep(client);
  manager_->destroy_ep(listener);
}

class Manual : public Synchronous {
 protected:
  Manual() { settings_.progress.mode = device::ProgressMode::manual; }
};

TEST_F(Manual, WaitingDrivesTheDevice) {
  rdma_cm_id* listener = passive_endpoint();
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(manager_->get_request(listener, &id), 0);
    EXPECT_EQ(manager_->accept(id, nullptr), 0);
    EXPECT_EQ(manager_->disconnect(id), 0);
    manager_->destroy_ep(id);
  });
  rdma_cm_id* client = active_endpoint(listener);
  EXPECT_EQ(manager_->connect(client, nullptr), 0);
  EXPECT_EQ(manager_->disconnect(client), 0);
  manager_->destroy_ep(client);
  server.join();
  manager_->destroy_ep(listener);
}

class QueuesOfId : public CmTest {};

TEST_F(QueuesOfId, QueuePairIsReadyForReceivesAndHasQueues) {
  listener_ = make_listener(passive_);
  rdma_cm_id* id = make_client(active_, listener_);
  auto attributes = queue_pair_attributes();
  ASSERT_EQ(manager_->create_qp(id, nullptr, &attributes), 0);
  EXPECT_EQ(id->qp->state, IBV_QPS_INIT);
  EXPECT_EQ(id->pd, id->qp->pd);
  EXPECT_NE(id->send_cq, id->recv_cq);
  EXPECT_EQ(id->send_cq->channel, id->send_cq_channel);
  EXPECT_EQ(id->send_cq->cq_context, id);
  EXPECT_EQ(manager_->create_qp(id, nullptr, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);
  manager_->destroy_qp(id);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(id->recv_cq_channel, nullptr);
  attributes = queue_pair_attributes();
  attributes.cap.max_inline_data = 1 << 20;
  EXPECT_EQ(manager_->create_qp(id, nullptr, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(id->send_cq, nullptr);
  destroy(id);
}

TEST_F(QueuesOfId, GivenQueuesAreUsed) {
  listener_ = make_listener(passive_);
  rdma_cm_id* id = make_client(active_, listener_);
  device::CompletionQueue queue(*context_, 16, nullptr, nullptr);
  auto attributes = queue_pair_attributes();
  attributes.send_cq = attributes.recv_cq = queue.verbs();
  ASSERT_EQ(manager_->create_qp(id, nullptr, &attributes), 0);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(id->qp->send_cq, queue.verbs());
  destroy(id);
}

TEST_F(QueuesOfId, SharedReceivesServeTheQueuePair) {
  listener_ = make_listener(passive_);
  rdma_cm_id* id = make_client(active_, listener_);
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = 8;
  ASSERT_EQ(manager_->create_srq(id, nullptr, &wanted), 0);
  EXPECT_GE(wanted.attr.max_sge, 1U);
  auto attributes = queue_pair_attributes();
  ASSERT_EQ(manager_->create_qp(id, nullptr, &attributes), 0);
  EXPECT_EQ(id->qp->srq, id->srq);
  manager_->destroy_qp(id);
  manager_->destroy_srq(id);
  EXPECT_EQ(id->srq, nullptr);
  destroy(id);
}

TEST_F(QueuesOfId, DevicesAreListed) {
  int count = 0;
  ibv_context** list = manager_->get_devices(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(list[0], context_->verbs());
  EXPECT_EQ(list[1], nullptr);
  Manager::free_devices(list);
}

TEST_F(QueuesOfId, WhatTheDeviceHasNotIsRefused) {
  rdma_cm_id* id = make_id(active_);
  ibv_ece ece{};
  EXPECT_EQ(manager_->set_local_ece(id, &ece), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(manager_->notify(id, IBV_EVENT_COMM_EST), 0);
  destroy(id);
}

}  // namespace
}  // namespace weft::cm
