// A device with a listener, for tests of the other end of a pair of processes that breaks rules.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "cm/hostile_end.h"

namespace weft::cm {

// Of a request that both ends of a connection may make.
inline ibv_wr_opcode any_operation(test::Random& random) {
  constexpr std::array operations{IBV_WR_SEND,
                                  IBV_WR_SEND_WITH_IMM,
                                  IBV_WR_RDMA_WRITE,
                                  IBV_WR_RDMA_WRITE_WITH_IMM,
                                  IBV_WR_RDMA_READ,
                                  IBV_WR_ATOMIC_FETCH_AND_ADD,
                                  IBV_WR_ATOMIC_CMP_AND_SWP};
  return operations[random.below(operations.size())];
}

class HostilePair : public CmTest {
 protected:
  HostilePair() { settings_.disconnect.proofs_ns = 1'000'000; }

  void SetUp() override {
    CmTest::SetUp();
    if (settings_.same_host == device::SameHost::off) GTEST_SKIP() << "about leaving TCP";
    strangers_ = manager_->create_event_channel();
    target_ = make_listener(strangers_);
    expect_service();
  }
  void TearDown() override {
    if (target_) {
      manager_->destroy_id(target_);
      reject_strangers();
      manager_->destroy_event_channel(strangers_);
    }
    CmTest::TearDown();
  }

  [[nodiscard]] static sockaddr_storage address_of(rdma_cm_id* listener) {
    sockaddr_storage address{};
    std::memcpy(&address, rdma_get_local_addr(listener), sizeof(sockaddr_in));
    return address;
  }
  // What the device has refused, or has ended because of it.
  [[nodiscard]] std::uint64_t counted() const {
    const device::Refusals& refusals = device_->refusals();
    return refusals.malformed + refusals.local_refused + refusals.local_violations;
  }
  // Where the device connects to, and where hostile ends do.
  [[nodiscard]] sockaddr_storage address() const { return address_of(listener_); }
  [[nodiscard]] sockaddr_storage target() const { return address_of(target_); }

  // Others are served.
  void expect_service() {
    Pair pair = connect_pair();
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(pair.server->qp, &receive, &bad_receive), 0);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(pair.client->qp, &send, &bad), 0);
    EXPECT_EQ(completion_of(pair.server->recv_cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion_of(pair.client->send_cq).status, IBV_WC_SUCCESS);
    destroy(pair);
  }

  // Rejects the request, if the event is one.
  void serve_event(rdma_event_channel* channel) {
    auto event = next(channel);
    if (!event || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return;
    rdma_cm_id* const id = event->id;
    event.reset();
    manager_->reject(id, nullptr, 0);
    manager_->destroy_id(id);
  }
  void reject_strangers() {
    while (!quiet(strangers_)) serve_event(strangers_);
  }

  // The next event of a client. Requests that come meanwhile are rejected.
  rdma_cm_event_type await_client() {
    while (true) {
      std::array<pollfd, 2> channels{{{active_->fd, POLLIN, 0}, {passive_->fd, POLLIN, 0}}};
      if (::poll(channels.data(), channels.size(), patience_ms) < 1) {
        ADD_FAILURE() << "no event";
        return RDMA_CM_EVENT_ADDR_ERROR;
      }
      if (channels[1].revents != 0) serve_event(passive_);
      if (channels[0].revents == 0) continue;
      const auto event = next(active_);
      return event->event;
    }
  }

  // A client whose request has arrived at the hostile end.
  rdma_cm_id* ask(HostileEnd& end, std::optional<HostileEnd::Message>& request) {
    rdma_cm_id* const client = make_client(active_, listener_);
    make_queue_pair(client);
    rdma_conn_param parameters{};
    EXPECT_EQ(manager_->connect(client, &parameters), 0);
    request = end.await();
    EXPECT_TRUE(request.has_value());
    return client;
  }

  rdma_event_channel* strangers_ = nullptr;
  rdma_cm_id* target_ = nullptr;
};

}  // namespace weft::cm
