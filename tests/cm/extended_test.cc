// Extended connections (XRC) by rdma_cm: rdma_create_ep(3) with the types XRC_SEND and XRC_RECV.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "cm/fixture.h"
#include "device/memory/memory.h"
#include "device/queue_pair/xrc_domain.h"

namespace weft::cm {
namespace {

struct FreeInfo {
  void operator()(rdma_addrinfo* info) const { freeaddrinfo(info); }
};

class Extended : public CmTest {
 protected:
  using Info = std::unique_ptr<rdma_addrinfo, FreeInfo>;

  Info info(const rdma_cm_id* peer, ibv_qp_type type) {
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST | (peer ? 0 : RAI_PASSIVE);
    hints.ai_qp_type = type;
    hints.ai_port_space = type == IBV_QPT_RC ? RDMA_PS_TCP : RDMA_PS_IB;
    const auto port = peer ? ntohs(Manager::get_src_port(const_cast<rdma_cm_id*>(peer))) : 0;
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(manager_->getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &found), 0);
    return Info(found);
  }

  rdma_cm_id* endpoint(const rdma_cm_id* peer, ibv_qp_type type) {
    auto attributes = queue_pair_attributes();
    rdma_cm_id* id = nullptr;
    const auto where = info(peer, type);
    EXPECT_EQ(manager_->create_ep(&id, where.get(), nullptr, &attributes), 0) << strerror(errno);
    if (!peer) {
      EXPECT_EQ(manager_->listen(id, 0), 0);
    }
    return id;
  }

  // A shared receive queue of the id, with one receive.
  std::uint32_t make_receives(rdma_cm_id* id, const ibv_mr& region) {
    ibv_srq_init_attr attributes{.srq_context = id,
                                 .attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0}};
    EXPECT_EQ(manager_->create_srq(id, nullptr, &attributes), 0) << strerror(errno);
    std::uint32_t number = 0;
    EXPECT_EQ(device::number_of_shared_queue(id->srq, &number), 0);
    ibv_sge slice{reinterpret_cast<std::uintptr_t>(region.addr),
                  static_cast<std::uint32_t>(region.length), region.lkey};
    ibv_recv_wr receive{.wr_id = 7, .next = nullptr, .sg_list = &slice, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(id->srq, &receive, &bad), 0);
    return number;
  }
};

TEST_F(Extended, ASendNamesTheSharedQueueOfTheAcceptingSide) {
  if (!device_->is_roce()) GTEST_SKIP() << "an iWARP device has no extended connections";
  rdma_cm_id* listener = endpoint(nullptr, IBV_QPT_XRC_RECV);
  rdma_cm_id* client = endpoint(listener, IBV_QPT_XRC_SEND);
  ASSERT_NE(client->qp, nullptr);
  EXPECT_EQ(client->qp->qp_type, IBV_QPT_XRC_SEND);
  std::array<char, 16> into{};
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(manager_->get_request(listener, &id), 0) << strerror(errno);
    ASSERT_NE(id->qp, nullptr);
    EXPECT_EQ(id->qp->qp_type, IBV_QPT_XRC_RECV);
    ASSERT_NE(id->pd, nullptr);
    ibv_mr* const region = context_->register_memory(
        *device::ProtectionDomain::of(id->pd), into.data(), into.size(),
        reinterpret_cast<std::uintptr_t>(into.data()), IBV_ACCESS_LOCAL_WRITE);
    const std::uint32_t number = make_receives(id, *region);
    rdma_conn_param parameters{};
    parameters.private_data = &number;
    parameters.private_data_len = sizeof number;
    ASSERT_EQ(manager_->accept(id, &parameters), 0) << strerror(errno);
    const ibv_wc received = completion_of(id->recv_cq);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, 7U);
    EXPECT_EQ(received.byte_len, 5U);
    EXPECT_EQ(manager_->disconnect(id), 0);
    context_->deregister_memory(region);
    manager_->destroy_ep(id);
  });
  ASSERT_EQ(manager_->connect(client, nullptr), 0) << strerror(errno);
  char text[] = "hello";
  ibv_sge slice{reinterpret_cast<std::uintptr_t>(text), 5, 0};
  ibv_send_wr request{};
  request.sg_list = &slice;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  std::memcpy(&request.qp_type.xrc.remote_srqn, client->event->param.conn.private_data, 4);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(client->qp, &request, &bad), 0);
  EXPECT_EQ(completion_of(client->send_cq).status, IBV_WC_SUCCESS);
  server.join();
  EXPECT_STREQ(into.data(), "hello");
  manager_->disconnect(client);
  manager_->destroy_ep(client);
  manager_->destroy_ep(listener);
}

// Rejected without the program's doing, as by the kernel's connection manager.
TEST_F(Extended, BothSidesMustBe) {
  if (!device_->is_roce()) GTEST_SKIP() << "an iWARP device has no extended connections";
  for (const bool listens : {true, false}) {
    rdma_cm_id* listener = endpoint(nullptr, listens ? IBV_QPT_XRC_RECV : IBV_QPT_RC);
    rdma_cm_id* client = endpoint(listener, listens ? IBV_QPT_RC : IBV_QPT_XRC_SEND);
    EXPECT_EQ(manager_->connect(client, nullptr), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    manager_->destroy_ep(client);
    manager_->destroy_ep(listener);
  }
}

TEST_F(Extended, AnIwarpDeviceHasNone) {
  if (device_->is_roce()) GTEST_SKIP() << "the device is no iWARP device";
  auto attributes = queue_pair_attributes();
  rdma_cm_id* listener = endpoint(nullptr, IBV_QPT_RC);
  const auto where = info(listener, IBV_QPT_XRC_SEND);
  rdma_cm_id* client = nullptr;
  EXPECT_EQ(manager_->create_ep(&client, where.get(), nullptr, &attributes), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  manager_->destroy_ep(listener);
}

}  // namespace
}  // namespace weft::cm
