// rdma_resolve_addrinfo(3), rdma_query_addrinfo(3), rdma_write_cm_event(3).

#include "cm/newer.h"

#include <arpa/inet.h>

#include "cm/fixture.h"
#include "support/refuse.h"

namespace weft::cm {
namespace {

class Newer : public CmTest {
 protected:
  // Takes and acknowledges the next event on the channel; returns its type and status.
  std::pair<int, int> next(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(manager_->get_cm_event(channel, &event), 0);
    const std::pair found{newer::type_of(*event), event->status};
    manager_->ack_cm_event(event);
    return found;
  }
};

TEST_F(Newer, ResolvingEndsWithAnEventAndAList) {
  rdma_cm_id* id = make_id(active_);
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(manager_->query_addrinfo(id, &found), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_addrinfo hints{};
  hints.ai_flags = newer::rai_dns | RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(manager_->resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0);
  const auto event = next(active_);
  EXPECT_EQ(event.first, newer::event_addrinfo_resolved);
  EXPECT_EQ(event.second, 0);
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(manager_->query_addrinfo(id, &found), 0);
    ASSERT_NE(found->ai_dst_addr, nullptr);
    const auto* address = reinterpret_cast<const sockaddr_in*>(found->ai_dst_addr);
    EXPECT_EQ(ntohs(address->sin_port), 7471);
    EXPECT_EQ(ntohl(address->sin_addr.s_addr), INADDR_LOOPBACK);
    EXPECT_EQ(manager_->resolve_addr(id, nullptr, found->ai_dst_addr, 1000), again == 0 ? 0 : -1);
    cm::freeaddrinfo(found);
  }
  EXPECT_EQ(next(active_).first, RDMA_CM_EVENT_ADDR_RESOLVED);
  destroy(id);
}

TEST_F(Newer, WhatCannotBeResolvedIsAnEventToo) {
  rdma_cm_id* id = make_id(active_);
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  ASSERT_EQ(manager_->resolve_addrinfo(id, "no number", nullptr, &hints), 0);
  const auto event = next(active_);
  EXPECT_EQ(event.first, newer::event_addrinfo_error);
  EXPECT_LT(event.second, 0);
  destroy(id);
}

TEST_F(Newer, ThereIsNoSubnetAdministrator) {
  rdma_cm_id* id = make_id(active_);
  rdma_addrinfo hints{};
  hints.ai_flags = newer::rai_sa;
  EXPECT_EQ(manager_->resolve_addrinfo(id, nullptr, "0x1234", &hints), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(manager_->resolve_addrinfo(id, nullptr, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(id);
}

TEST_F(Newer, AnIdMayGoWhileItsNameIsLookedUp) {
  rdma_cm_id* id = make_id(active_);
  ASSERT_EQ(manager_->resolve_addrinfo(id, "127.0.0.1", nullptr, nullptr), 0);
  destroy(id);
}

// Where no thread can be started, the call fails, and a later one is possible.
TEST_F(Newer, ASearchThatCannotStartLeavesTheIdAsItWas) {
  rdma_cm_id* id = make_id(active_);
  const bool refused = test::run_without({SYS_clone, SYS_clone3}, EAGAIN, [&] {
    EXPECT_EQ(manager_->resolve_addrinfo(id, "127.0.0.1", nullptr, nullptr), -1);
    EXPECT_EQ(errno, EAGAIN);
  });
  if (refused) {
    EXPECT_EQ(manager_->resolve_addrinfo(id, "127.0.0.1", nullptr, nullptr), 0);
  }
  destroy(id);
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
}

TEST_F(Newer, AProgramWritesItsOwnEvents) {
  rdma_cm_id* id = make_id(active_);
  constexpr std::uint64_t argument = 0x55667788AABBCCDD;
  ASSERT_EQ(manager_->write_cm_event(id, newer::event_user, 0x11223344, argument), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(manager_->get_cm_event(active_, &event), 0);
  EXPECT_EQ(event->id, id);
  EXPECT_EQ(newer::type_of(*event), newer::event_user);
  EXPECT_EQ(event->status, 0x11223344);
  EXPECT_EQ(newer::argument_of(*event), argument);
  manager_->ack_cm_event(event);
  EXPECT_EQ(manager_->write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(id);
}

}  // namespace
}  // namespace weft::cm
