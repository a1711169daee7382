// The UDP port space: ids that exchange the numbers of their queue pairs, and groups.
#include <cstring>
#include <thread>

#include "cm/fixture.h"
#include "device/addresses.h"
#include "device/datagram/address_handle.h"
#include "device/datagram/datagrams.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::cm {
namespace {

std::string data_of(const rdma_cm_event& event) {
  const auto& ud = event.param.ud;
  return {static_cast<const char*>(ud.private_data), ud.private_data_len};
}

class Datagrams : public CmTest {
 protected:
  void SetUp() override {
    CmTest::SetUp();
    if (device_->is_roce()) return;
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(manager_->create_id(active_, &id, nullptr, RDMA_PS_UDP), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    GTEST_SKIP() << "an iWARP adapter has no datagrams, and was asked";
  }

  rdma_cm_id* make(rdma_event_channel* channel) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(manager_->create_id(channel, &id, nullptr, RDMA_PS_UDP), 0) << strerror(errno);
    EXPECT_EQ(id->qp_type, IBV_QPT_UD);
    return id;
  }
  void make_datagram_queue_pair(rdma_cm_id* id) {
    auto attributes = queue_pair_attributes();
    attributes.qp_type = IBV_QPT_UD;
    ASSERT_EQ(manager_->create_qp(id, nullptr, &attributes), 0) << strerror(errno);
    EXPECT_EQ(id->qp->state, IBV_QPS_RTS);
  }
  rdma_cm_id* make_service(const char* address = "127.0.0.1", int backlog = 0) {
    rdma_cm_id* id = make(passive_);
    auto local = ipv4(address, 0);
    EXPECT_EQ(manager_->bind_addr(id, reinterpret_cast<sockaddr*>(&local)), 0) << strerror(errno);
    EXPECT_EQ(manager_->listen(id, backlog), 0);
    EXPECT_NE(Manager::get_src_port(id), 0);
    return id;
  }
  rdma_cm_id* make_asker(std::uint16_t port, const char* address = "127.0.0.1") {
    rdma_cm_id* id = make(active_);
    auto destination = ipv4(address, port);
    EXPECT_EQ(manager_->resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&destination), 2000),
              0);
    expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(manager_->resolve_route(id, 2000), 0);
    expect(active_, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_datagram_queue_pair(id);
    return id;
  }
  void ask(rdma_cm_id* id, const char* text) {
    rdma_conn_param parameters{};
    parameters.private_data = text;
    parameters.private_data_len = static_cast<std::uint8_t>(std::strlen(text));
    EXPECT_EQ(manager_->connect(id, &parameters), 0) << strerror(errno);
  }
  // Registered memory of an id, filled with `byte`.
  struct Memory {
    Memory(rdma_cm_id* id, std::uint8_t byte)
        : context(*device::Context::of(id->verbs)), bytes(200, byte) {
      mr = context.register_memory(*device::ProtectionDomain::of(id->pd), bytes.data(),
                                   bytes.size(), reinterpret_cast<std::uint64_t>(bytes.data()),
                                   IBV_ACCESS_LOCAL_WRITE);
    }
    ~Memory() { context.deregister_memory(mr); }
    [[nodiscard]] ibv_sge sge(std::uint32_t length) const {
      return {reinterpret_cast<std::uint64_t>(bytes.data()), length, mr->lkey};
    }
    device::Context& context;
    std::vector<std::uint8_t> bytes;
    ibv_mr* mr;
  };
  static void post_receive(rdma_cm_id* id, const Memory& memory) {
    ibv_sge sge = memory.sge(200);
    ibv_recv_wr request{.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(id->qp, &request, &bad), 0);
  }
  // Sends to the destination that an event has reported.
  static void send(rdma_cm_id* id, const rdma_ud_param& to, const Memory& memory) {
    auto attributes = to.ah_attr;
    const std::unique_ptr<device::AddressHandle> handle(
        device::AddressHandle::create(*device::ProtectionDomain::of(id->pd), attributes));
    ASSERT_NE(handle, nullptr);
    ibv_sge sge = memory.sge(100);
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.wr.ud = {handle->verbs(), to.qp_num, to.qkey};
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(id->qp, &request, &bad), 0);
  }
};

// A program may collect its clients before it answers the first of them.
TEST_F(Datagrams, TheBacklogIsOfRequestsThatWereNotFetched) {
  rdma_cm_id* service = make_service("127.0.0.1", 1);
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(make_asker(ntohs(Manager::get_src_port(service))));
    ask(ids.back(), "one more");
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_TRUE(request);
    ids.push_back(request->id);
  }
  for (std::size_t i = 1; i < ids.size(); i += 2) {
    make_datagram_queue_pair(ids[i]);
    rdma_conn_param parameters{};
    EXPECT_EQ(manager_->accept(ids[i], &parameters), 0);
    expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  }
  for (rdma_cm_id* id : ids) destroy(id);
  destroy(service);
}

TEST_F(Datagrams, WhatIsNotTakenIsCounted) {
  rdma_cm_id* service = make_service("127.0.0.1", 1);
  const std::uint16_t port = ntohs(Manager::get_src_port(service));
  const auto& counted = device_->refusals();
  const auto comes_true = [](const auto& condition) {
    const std::uint64_t end_ns = device::sys::now_ns() + 60'000'000'000;
    while (!condition() && device::sys::now_ns() < end_ns) std::this_thread::yield();
    EXPECT_TRUE(condition());
  };
  std::vector<rdma_cm_id*> ids;
  for (int i = 0; i < 2; ++i) {
    ids.push_back(make_asker(port));
    ask(ids.back(), "one more");
  }
  comes_true([&] { return counted.queries_ignored >= 1; });
  EXPECT_EQ(counted.queries_malformed, 0U);

  const device::sys::Descriptor stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto to = ipv4("127.0.0.1", port);
  for (const std::string_view text : {"", "GET / HTTP/1.1"}) {
    const std::uint64_t before = counted.queries_malformed;
    ASSERT_EQ(::sendto(stranger.get(), text.data(), text.size(), 0,
                       reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(text.size()));
    comes_true([&] { return counted.queries_malformed == before + 1; });
  }

  // The second one repeats its request until the first is fetched.
  for (int i = 0; i < 2; ++i) {
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_TRUE(request);
    ids.push_back(request->id);
  }
  for (rdma_cm_id* id : ids) destroy(id);
  destroy(service);
}

TEST_F(Datagrams, WhoAsksIsToldWhereToSend) {
  rdma_cm_id* service = make_service();
  rdma_cm_id* asker = make_asker(ntohs(Manager::get_src_port(service)));
  ask(asker, "who is there?");
  auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->listen_id, service);
  EXPECT_EQ(data_of(*request), "who is there?");
  rdma_cm_id* server = request->id;
  EXPECT_EQ(server->ps, RDMA_PS_UDP);
  make_datagram_queue_pair(server);
  {
    const Memory sink(server, 0);
    const Memory source(asker, 0x33);
    post_receive(server, sink);
    rdma_conn_param parameters{};
    parameters.private_data = "me";
    parameters.private_data_len = 2;
    EXPECT_EQ(manager_->accept(server, &parameters), 0);
    request.reset();
    const auto told = expect(active_, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_TRUE(told);
    EXPECT_EQ(data_of(*told), "me");
    EXPECT_EQ(told->param.ud.qp_num, server->qp->qp_num);
    EXPECT_EQ(told->param.ud.qkey, static_cast<std::uint32_t>(RDMA_UDP_QKEY));
    send(asker, told->param.ud, source);
    const ibv_wc received = completion_of(server->recv_cq);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.src_qp, asker->qp->qp_num);
    EXPECT_EQ(sink.bytes[40], 0x33);
  }
  EXPECT_TRUE(quiet(passive_)) << "who accepts hears nothing more";
  EXPECT_EQ(manager_->disconnect(asker), 0);
  EXPECT_EQ(asker->qp->state, IBV_QPS_ERR);
  for (rdma_cm_id* id : {asker, server, service}) destroy(id);
}

TEST_F(Datagrams, ARejectionIsTheAnswer) {
  rdma_cm_id* service = make_service();
  rdma_cm_id* asker = make_asker(ntohs(Manager::get_src_port(service)));
  ask(asker, "please");
  auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(request);
  rdma_cm_id* server = request->id;
  EXPECT_EQ(manager_->reject(server, "no", 2), 0);
  request.reset();
  constexpr int rejected = 2;  // of InfiniBand's service ID resolution
  auto told = expect(active_, RDMA_CM_EVENT_UNREACHABLE, rejected);
  ASSERT_TRUE(told);
  EXPECT_EQ(data_of(*told), "no");
  told.reset();
  for (rdma_cm_id* id : {asker, server, service}) destroy(id);
}

// A port that is bound and never listens. A server has a second to begin listening.
TEST_F(Datagrams, WithoutAServiceItIsUnreachable) {
  rdma_cm_id* bound = make(passive_);
  auto local = ipv4("127.0.0.1", 0);
  ASSERT_EQ(manager_->bind_addr(bound, reinterpret_cast<sockaddr*>(&local)), 0);
  rdma_cm_id* asker = make_asker(ntohs(Manager::get_src_port(bound)));
  ask(asker, "");
  constexpr int unsupported = 1;
  expect(active_, RDMA_CM_EVENT_UNREACHABLE, unsupported);
  for (rdma_cm_id* id : {asker, bound}) destroy(id);
}

TEST_F(Datagrams, ADestroyedRequestIsRejected) {
  rdma_cm_id* service = make_service("0.0.0.0");
  rdma_cm_id* asker = make_asker(ntohs(Manager::get_src_port(service)));
  ask(asker, "");
  rdma_cm_id* server = nullptr;
  {
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_TRUE(request);
    server = request->id;
  }
  destroy(server);
  expect(active_, RDMA_CM_EVENT_UNREACHABLE, 2);
  for (rdma_cm_id* id : {asker, service}) destroy(id);
}

// A server for one client destroys its listener first. Repetitions of the request find the port
// open, and after the answer it is free.
TEST_F(Datagrams, ARequestOutlivesItsListener) {
  for (const bool accepts : {true, false}) {
    rdma_cm_id* service = make_service();
    const std::uint16_t port = ntohs(Manager::get_src_port(service));
    rdma_cm_id* asker = make_asker(port);
    ask(asker, "who?");
    rdma_cm_id* server = nullptr;
    {
      const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
      ASSERT_TRUE(request);
      server = request->id;
    }
    destroy(service);
    make_datagram_queue_pair(server);
    rdma_conn_param parameters{};
    if (accepts) {
      EXPECT_EQ(manager_->accept(server, &parameters), 0) << strerror(errno);
      expect(active_, RDMA_CM_EVENT_ESTABLISHED);
    } else {
      EXPECT_EQ(manager_->reject(server, nullptr, 0), 0) << strerror(errno);
      expect(active_, RDMA_CM_EVENT_UNREACHABLE, 2);
    }
    rdma_cm_id* next = make(passive_);
    auto same = ipv4("127.0.0.1", port);
    EXPECT_EQ(manager_->bind_addr(next, reinterpret_cast<sockaddr*>(&same)), 0) << strerror(errno);
    for (rdma_cm_id* id : {next, server, asker}) destroy(id);
  }
}

TEST_F(Datagrams, PortsAreThoseOfUdp) {
  // Another program of this machine may hold the number in TCP, so several numbers are tried.
  bool bound = false;
  for (int round = 0; round < 20 && !bound; ++round) {
    rdma_cm_id* service = make_service();
    rdma_cm_id* other = make(passive_);
    auto same = ipv4("127.0.0.1", ntohs(Manager::get_src_port(service)));
    EXPECT_EQ(manager_->bind_addr(other, reinterpret_cast<sockaddr*>(&same)), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    rdma_cm_id* stream = make_id(passive_);
    bound = manager_->bind_addr(stream, reinterpret_cast<sockaddr*>(&same)) == 0;
    for (rdma_cm_id* id : {service, other, stream}) destroy(id);
  }
  EXPECT_TRUE(bound) << "TCP's ports are others";
}

TEST_F(Datagrams, TooMuchPrivateDataIsRefused) {
  rdma_cm_id* asker = make_asker(9);
  const std::string text(181, 'x');
  rdma_conn_param parameters{};
  parameters.private_data = text.data();
  parameters.private_data_len = 181;
  EXPECT_EQ(manager_->connect(asker, &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(asker);
}

TEST_F(Datagrams, SynchronousIdsWaitForTheAnswer) {
  rdma_cm_id* service = make_service();
  const std::uint16_t port = ntohs(Manager::get_src_port(service));
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    {
      const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
      ASSERT_TRUE(request);
      id = request->id;
    }
    make_datagram_queue_pair(id);
    EXPECT_EQ(manager_->accept(id, nullptr), 0);
    destroy(id);
  });
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_UDP;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(manager_->getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &found), 0);
  auto attributes = queue_pair_attributes();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(manager_->create_ep(&id, found, nullptr, &attributes), 0) << strerror(errno);
  cm::freeaddrinfo(found);
  ASSERT_NE(id->qp, nullptr);
  EXPECT_EQ(id->qp->qp_type, IBV_QPT_UD);
  EXPECT_EQ(manager_->connect(id, nullptr), 0) << strerror(errno);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
  manager_->destroy_ep(id);
  server.join();
  destroy(service);
}

class Groups : public Datagrams {
 protected:
  void SetUp() override {
    Datagrams::SetUp();
    if (IsSkipped()) return;
    member_ = make_bound(passive_);
    make_datagram_queue_pair(member_);
  }
  void TearDown() override {
    if (member_) destroy(member_);
    CmTest::TearDown();
  }
  rdma_cm_id* make_bound(rdma_event_channel* channel) {
    rdma_cm_id* id = make(channel);
    auto local = ipv4("127.0.0.1", 0);
    EXPECT_EQ(manager_->bind_addr(id, reinterpret_cast<sockaddr*>(&local)), 0);
    return id;
  }
  sockaddr* group() { return reinterpret_cast<sockaddr*>(&group_); }

  sockaddr_in group_ = ipv4("239.192.8.1", 0);
  rdma_cm_id* member_ = nullptr;
};

TEST_F(Groups, WhoJoinsGetsWhatIsSentThere) {
  int mark = 0;
  ASSERT_EQ(manager_->join_multicast(member_, group(), &mark), 0) << strerror(errno);
  {
    const auto joined = next(passive_);
    ASSERT_TRUE(joined);
    if (joined->event == RDMA_CM_EVENT_MULTICAST_ERROR) {
      GTEST_SKIP() << "no IPv4 multicast on the loopback interface";
    }
    EXPECT_EQ(joined->event, RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_EQ(joined->param.ud.private_data, &mark);
    EXPECT_EQ(joined->param.ud.qp_num, 0xFFFFFFU);
    // The LIDs of groups on InfiniBand begin there.
    EXPECT_EQ(joined->param.ud.ah_attr.dlid >= 0xC000, device_->has_lids());
    rdma_cm_id* sender = make_bound(active_);
    make_datagram_queue_pair(sender);
    {
      const Memory source(sender, 0x44);
      const Memory sink(member_, 0);
      post_receive(member_, sink);
      send(sender, joined->param.ud, source);
      EXPECT_EQ(completion_of(member_->recv_cq).src_qp, sender->qp->qp_num);
      EXPECT_EQ(sink.bytes[40], 0x44);
    }
    destroy(sender);
  }
  EXPECT_EQ(manager_->leave_multicast(member_, group()), 0);
  EXPECT_EQ(manager_->leave_multicast(member_, group()), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST_F(Groups, WhoOnlySendsIsNoMember) {
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
  attributes.addr = group();
  EXPECT_EQ(manager_->join_multicast_ex(member_, &attributes, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  attributes.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  ASSERT_EQ(manager_->join_multicast_ex(member_, &attributes, nullptr), 0);
  expect(passive_, RDMA_CM_EVENT_MULTICAST_JOIN);
  auto& datagrams = device_->datagrams();
  const ibv_gid gid = device::gid_of(reinterpret_cast<sockaddr_storage&>(group_));
  EXPECT_EQ(datagrams.detach(*device::QueuePair::of(member_->qp), gid), EINVAL);
  EXPECT_EQ(manager_->leave_multicast(member_, group()), 0);
}

TEST_F(Groups, OnlyGroupsCanBeJoined) {
  auto host = ipv4("127.0.0.1", 0);
  EXPECT_EQ(manager_->join_multicast(member_, reinterpret_cast<sockaddr*>(&host), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_id* stream = make_id(active_);
  EXPECT_EQ(manager_->join_multicast(stream, group(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(stream);
}

TEST_F(Groups, AGroupIsAnAddressToResolve) {
  rdma_cm_id* id = make(active_);
  ASSERT_EQ(manager_->resolve_addr(id, nullptr, group(), 2000), 0);
  expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(id->verbs, nullptr);
  destroy(id);
}

}  // namespace
}  // namespace weft::cm
