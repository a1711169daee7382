#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netdb.h>

#include <cstring>

#include "cm/fixture.h"
#include "cm/plain_peer.h"
#include "cm/reservation.h"
#include "device/addresses.h"

namespace weft::cm {
namespace {

class Address : public CmTest {
 protected:
  template <typename T>
  int bind(rdma_cm_id* id, T address) {
    return manager_->bind_addr(id, reinterpret_cast<sockaddr*>(&address));
  }
};

TEST_F(Address, BindingToALocalAddressFindsTheDevice) {
  const auto locals = device::local_addresses();
  for (const auto& local : *locals) {
    rdma_cm_id* id = make_id(active_);
    EXPECT_EQ(id->verbs, nullptr);
    auto address = local.address;
    ASSERT_EQ(bind(id, address), 0) << device::to_string(address) << ": " << strerror(errno);
    EXPECT_EQ(id->verbs, context_->verbs());
    EXPECT_NE(id->pd, nullptr);
    EXPECT_EQ(id->port_num, 1);
    EXPECT_NE(Manager::get_src_port(id), 0);
    EXPECT_EQ(bind(id, address), -1);
    EXPECT_EQ(errno, EINVAL);
    destroy(id);
  }
}

TEST_F(Address, AllOf127IsLocal) {
  rdma_cm_id* id = make_id(active_);
  EXPECT_EQ(bind(id, ipv4("127.3.2.1", 0)), 0);
  EXPECT_NE(id->verbs, nullptr);
  destroy(id);
}

TEST_F(Address, WildcardHasNoDeviceYet) {
  rdma_cm_id* id = make_id(passive_);
  ASSERT_EQ(bind(id, ipv4("0.0.0.0", 0)), 0);
  EXPECT_EQ(id->verbs, nullptr);
  ASSERT_EQ(manager_->listen(id, 1), 0);
  EXPECT_EQ(id->verbs, nullptr);
  destroy(id);
}

TEST_F(Address, ForeignAddressIsNotAvailable) {
  rdma_cm_id* id = make_id(active_);
  EXPECT_EQ(bind(id, ipv4("198.51.100.7", 0)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  EXPECT_EQ(id->verbs, nullptr);
  // Nothing has happened to the id.
  EXPECT_EQ(bind(id, ipv4("127.0.0.1", 0)), 0);
  destroy(id);
}

TEST_F(Address, UnknownFamilyIsInvalid) {
  rdma_cm_id* id = make_id(active_);
  sockaddr address{};
  address.sa_family = AF_UNIX;
  EXPECT_EQ(manager_->bind_addr(id, &address), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(manager_->resolve_addr(id, nullptr, &address, 100), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(id);
}

TEST_F(Address, PortIsTakenFromBindOn) {
  rdma_cm_id* first = make_id(passive_);
  ASSERT_EQ(bind(first, ipv4("127.0.0.1", 0)), 0);
  const std::uint16_t port = ntohs(Manager::get_src_port(first));
  rdma_cm_id* second = make_id(passive_);
  EXPECT_EQ(bind(second, ipv4("127.0.0.1", port)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  ASSERT_EQ(manager_->listen(first, 1), 0);
  EXPECT_EQ(bind(second, ipv4("127.0.0.1", port)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(bind(second, ipv4("0.0.0.0", port)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(manager_->counters().addresses_in_use, 3U);
  destroy(first);
  EXPECT_EQ(bind(second, ipv4("127.0.0.1", port)), 0);
  destroy(second);
}

// The line on stderr about a port that is taken names the program itself.
TEST_F(Address, OwnListenersAreKnown) {
  std::uint16_t port = 0;
  {
    const PlainListener own;
    port = ntohs(own.address().sin_port);
    EXPECT_TRUE(listens_itself(port));
    rdma_cm_id* id = make_id(passive_);
    EXPECT_EQ(bind(id, ipv4("127.0.0.1", port)), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    destroy(id);
  }
  EXPECT_FALSE(listens_itself(port));
  rdma_cm_id* id = make_id(passive_);
  ASSERT_EQ(bind(id, ipv4("127.0.0.1", 0)), 0);
  port = ntohs(Manager::get_src_port(id));
  EXPECT_FALSE(listens_itself(port));  // it does not listen yet
  ASSERT_EQ(manager_->listen(id, 1), 0);
  EXPECT_TRUE(listens_itself(port));
  destroy(id);
}

TEST_F(Address, PortIsFreeAgainRightAfterItsConnections) {
  Pair pair = connect_pair();
  const std::uint16_t port = ntohs(Manager::get_src_port(listener_));
  destroy(pair.server);  // closes first: TIME_WAIT stays on this side
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair.client);
  destroy(listener_);
  listener_ = make_id(passive_);
  ASSERT_EQ(bind(listener_, ipv4("127.0.0.1", port)), 0) << strerror(errno);
  ASSERT_EQ(manager_->listen(listener_, 0), 0) << strerror(errno);
  Pair again = connect_pair();
  destroy(again);
}

TEST_F(Address, BothFamiliesMayHaveTheSamePortWhereTheyAreKeptApart) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no IPv6 loopback address";
  // The port that the kernel chooses for one family may be in use in the other.
  constexpr int attempts = 20;
  int result = -1;
  for (int i = 0; i < attempts && result != 0; ++i) {
    rdma_cm_id* v6 = make_id(passive_);
    int only = 1;
    ASSERT_EQ(manager_->set_option(v6, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only),
              0);
    ASSERT_EQ(bind(v6, ipv6("::", 0)), 0);
    ASSERT_EQ(manager_->listen(v6, 1), 0);
    rdma_cm_id* v4 = make_id(passive_);
    result = bind(v4, ipv4("0.0.0.0", ntohs(Manager::get_src_port(v6))));
    if (result == 0) {
      EXPECT_EQ(manager_->listen(v4, 1), 0);
    }
    destroy(v4);
    destroy(v6);
  }
  EXPECT_EQ(result, 0) << strerror(errno);
}

TEST_F(Address, OneListenerServesBothFamiliesOtherwise) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no IPv6 loopback address";
  rdma_cm_id* listener = make_id(passive_);
  ASSERT_EQ(bind(listener, ipv6("::", 0)), 0);
  ASSERT_EQ(manager_->listen(listener, 1), 0);
  auto to = ipv4("127.0.0.1", ntohs(Manager::get_src_port(listener)));
  rdma_cm_id* client = make_client_to(active_, reinterpret_cast<sockaddr*>(&to));
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  EXPECT_EQ(rdma_get_peer_addr(server)->sa_family, AF_INET);
  destroy(server);
  destroy(client);
  destroy(listener);
}

TEST_F(Address, ListeningUnboundTakesAnyPort) {
  rdma_cm_id* id = make_id(passive_);
  ASSERT_EQ(manager_->listen(id, 1), 0);
  EXPECT_NE(Manager::get_src_port(id), 0);
  EXPECT_EQ(manager_->listen(id, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  destroy(id);
}

TEST_F(Address, ResolvingFindsSourceDeviceAndRoute) {
  rdma_cm_id* id = make_id(active_);
  auto to = ipv4("127.0.0.1", 4711);
  ASSERT_EQ(manager_->resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
  expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(id->verbs, context_->verbs());
  EXPECT_EQ(id->port_num, 1);
  EXPECT_EQ(id->route.addr.src_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(ntohs(Manager::get_dst_port(id)), 4711);
  EXPECT_EQ(id->route.addr.addr.ibaddr.sgid.raw[12], 127);
  EXPECT_EQ(id->route.addr.addr.ibaddr.dgid.raw[device_->has_lids() ? 0 : 10],
            device_->has_lids() ? 0xFE : 0xFF);
  EXPECT_EQ(manager_->resolve_route(id, 1000), 0);
  expect(active_, RDMA_CM_EVENT_ROUTE_RESOLVED);
  if (!device_->is_roce()) {
    EXPECT_EQ(id->route.num_paths, 0);
  } else {
    ASSERT_EQ(id->route.num_paths, 1);
    EXPECT_EQ(id->route.path_rec->dgid.raw[12], 127);
    EXPECT_EQ(id->route.path_rec->pkey, id->route.addr.addr.ibaddr.pkey);
    EXPECT_GE(id->route.path_rec->mtu, IBV_MTU_1024);
    const std::uint16_t lid = device_->has_lids() ? 1 : 0;  // of 127.0.0.1
    EXPECT_EQ(ntohs(id->route.path_rec->dlid), lid);
    EXPECT_EQ(ntohs(id->route.path_rec->slid), lid);
  }
  destroy(id);
}

TEST_F(Address, AnyAsDestinationIsThisHost) {
  rdma_cm_id* id = make_id(active_);
  auto to = ipv4("0.0.0.0", 4711);
  ASSERT_EQ(manager_->resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
  expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(id->route.addr.dst_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  destroy(id);
}

TEST_F(Address, SourceIsKept) {
  rdma_cm_id* id = make_id(active_);
  auto from = ipv4("127.0.0.9", 0);
  auto to = ipv4("127.0.0.1", 4711);
  ASSERT_EQ(manager_->resolve_addr(id, reinterpret_cast<sockaddr*>(&from),
                                   reinterpret_cast<sockaddr*>(&to), 1000),
            0);
  expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(id->route.addr.src_sin.sin_addr.s_addr, from.sin_addr.s_addr);
  destroy(id);

  id = make_id(active_);
  from = ipv4("198.51.100.7", 0);
  EXPECT_EQ(manager_->resolve_addr(id, reinterpret_cast<sockaddr*>(&from),
                                   reinterpret_cast<sockaddr*>(&to), 1000),
            -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  destroy(id);
}

TEST_F(Address, BoundPortIsWhereTheConnectionComesFrom) {
  listener_ = make_listener(passive_);
  rdma_cm_id* client = make_id(active_);
  ASSERT_EQ(bind(client, ipv4("0.0.0.0", 0)), 0);
  const std::uint16_t port = Manager::get_src_port(client);
  ASSERT_EQ(manager_->resolve_addr(client, nullptr, rdma_get_local_addr(listener_), 1000), 0);
  expect(active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(Manager::get_src_port(client), port);
  ASSERT_EQ(manager_->resolve_route(client, 1000), 0);
  expect(active_, RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_queue_pair(client);
  ASSERT_EQ(manager_->connect(client, nullptr), 0);
  rdma_cm_id* server = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  EXPECT_EQ(Manager::get_dst_port(server), port);
  destroy(server);
  destroy(client);
}

TEST_F(Address, OptionsAreCheckedAsTheKernelDoes) {
  rdma_cm_id* id = make_id(active_);
  std::uint8_t small = 0x20;
  int flag = 1;
  const auto set = [&](int level, int name, void* value, std::size_t bytes) {
    errno = 0;
    return manager_->set_option(id, level, name, value, bytes) == 0 ? 0 : errno;
  };
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &small, sizeof small), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &flag, sizeof flag), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag, sizeof flag), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &flag, sizeof flag), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &small, sizeof small), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, 77, &small, sizeof small), ENOSYS);
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &flag, sizeof flag), EINVAL);
  EXPECT_EQ(set(5, 0, &flag, sizeof flag), ENOSYS);
  destroy(id);
}

TEST_F(Address, OtherPortSpacesDoNotExist) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(manager_->create_id(active_, &id, nullptr, RDMA_PS_IPOIB), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(manager_->create_id(active_, &id, nullptr, static_cast<rdma_port_space>(1)), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(manager_->create_id(active_, &id, nullptr, RDMA_PS_IB), 0);
  EXPECT_EQ(id->qp_type, IBV_QPT_RC);
  destroy(id);
}

class Offset : public Address {
 protected:
  Offset() { settings_.port_offset = 1000; }
};

TEST_F(Offset, IsHiddenFromTheProgram) {
  Pair pair = connect_pair();
  EXPECT_EQ(Manager::get_dst_port(pair.client), Manager::get_src_port(listener_));
  EXPECT_EQ(Manager::get_dst_port(pair.server), Manager::get_src_port(pair.client));
  const auto shown = ntohs(Manager::get_src_port(listener_));
  destroy(pair);
  destroy(listener_);
  listener_ = nullptr;
  rdma_cm_id* id = make_id(passive_);
  ASSERT_EQ(bind(id, ipv4("127.0.0.1", shown)), 0) << strerror(errno);
  EXPECT_EQ(ntohs(Manager::get_src_port(id)), shown);
  destroy(id);
}

// A program like tgtd: iSCSI by TCP and iSER by rdma_cm, on the same number.
TEST_F(Address, ATakenPortNamesTheRemedy) {
  const PlainListener own;
  const std::uint16_t port = ntohs(own.address().sin_port);
  rdma_cm_id* id = make_id(passive_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(bind(id, ipv4("127.0.0.1", port)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      text, testing::HasSubstr("a listener of this program has TCP port " + std::to_string(port)));
  EXPECT_THAT(text, testing::HasSubstr("WEFT_PORT_OFFSET=n, on both sides"));
  destroy(id);
}

TEST_F(Offset, OneNumberServesTcpAndRdmaCm) {
  const PlainListener own;
  const std::uint16_t port = ntohs(own.address().sin_port);
  if (port > 65535 - 1000) GTEST_SKIP() << "the ephemeral port is too near to the last one";
  listener_ = make_id(passive_);
  if (bind(listener_, ipv4("127.0.0.1", port)) != 0 && errno == EADDRINUSE) {
    destroy(listener_);
    listener_ = nullptr;
    GTEST_SKIP() << "another program has the port of rdma_cm";
  }
  ASSERT_EQ(manager_->listen(listener_, 8), 0) << strerror(errno);
  PlainPeer plain = PlainPeer::connect(port);
  ASSERT_TRUE(plain.valid());
  PlainPeer accepted = own.accept();
  const std::string text = "iSCSI";
  plain.send(std::as_bytes(std::span(text)));
  EXPECT_EQ(accepted.receive(text.size()).size(), text.size());
  Pair pair = connect_pair();
  EXPECT_EQ(ntohs(Manager::get_dst_port(pair.client)), port);
  destroy(pair);
}

class OneAddress : public Address {
 protected:
  OneAddress() { settings_.address = "127.0.0.1"; }
};

TEST_F(OneAddress, OthersOfThisHostHaveNoDevice) {
  const auto locals = device::local_addresses();
  for (const auto& local : *locals) {
    rdma_cm_id* id = make_id(active_);
    auto address = local.address;
    const int result = bind(id, address);
    if (local.loopback) {
      EXPECT_EQ(result, 0);
    } else {
      EXPECT_EQ(result, -1);
      EXPECT_EQ(errno, ENODEV);
    }
    destroy(id);
  }
}

class AddressInfo : public CmTest {};

TEST_F(AddressInfo, DefaultsToReliableConnectionsOverTcp) {
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(manager_->getaddrinfo("127.0.0.1", "7471", nullptr, &info), 0);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  EXPECT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(info->ai_src_len, 0U);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port, htons(7471));
  cm::freeaddrinfo(info);
}

TEST_F(AddressInfo, PassiveFillsTheSource) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_IB;
  hints.ai_family = AF_INET;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(manager_->getaddrinfo(nullptr, "7471", &hints, &info), 0);
  EXPECT_EQ(info->ai_flags, RAI_PASSIVE);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_IB);
  EXPECT_EQ(info->ai_dst_len, 0U);
  ASSERT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(info->ai_src_addr)->sin_addr.s_addr, 0U);
  cm::freeaddrinfo(info);
}

// libfabric asks so for the address that it announces to other hosts. A number keeps its meaning,
// and so does the name with a port.
TEST_F(AddressInfo, LocalhostWithoutAPortIsTheDevicesAddress) {
  const sockaddr_storage& first = device_->addresses().front().address;
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_family = first.ss_family;
  const auto source_of = [&](const char* node, const char* service) {
    rdma_addrinfo* info = nullptr;
    EXPECT_EQ(manager_->getaddrinfo(node, service, &hints, &info), 0);
    sockaddr_storage source{};
    if (info) std::memcpy(&source, info->ai_src_addr, info->ai_src_len);
    cm::freeaddrinfo(info);
    return source;
  };
  EXPECT_TRUE(device::same_host_address(source_of("localhost", nullptr), first));
  EXPECT_TRUE(device::is_loopback_address(source_of("localhost", "7471")));
  if (first.ss_family != AF_INET) return;
  EXPECT_TRUE(device::is_loopback_address(source_of("127.0.0.1", nullptr)));
}

TEST_F(AddressInfo, ServiceNamesAndSourcesAreUnderstood) {
  rdma_addrinfo hints{};
  auto from = ipv4("127.0.0.9", 0);
  hints.ai_src_addr = reinterpret_cast<sockaddr*>(&from);
  hints.ai_src_len = sizeof from;
  rdma_addrinfo* info = nullptr;
  const int result = manager_->getaddrinfo("127.0.0.1", "ssh", &hints, &info);
  if (result == EAI_SERVICE) GTEST_SKIP() << "this machine has no /etc/services";
  ASSERT_EQ(result, 0);
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port, htons(22));
  ASSERT_EQ(info->ai_src_len, sizeof from);
  EXPECT_NE(info->ai_src_addr, hints.ai_src_addr);
  EXPECT_EQ(std::memcmp(info->ai_src_addr, &from, sizeof from), 0);
  cm::freeaddrinfo(info);
}

TEST_F(AddressInfo, FailuresAreThoseOfTheResolver) {
  rdma_addrinfo* info = nullptr;
  EXPECT_EQ(manager_->getaddrinfo(nullptr, nullptr, nullptr, &info), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  EXPECT_EQ(manager_->getaddrinfo("no.such.name", "7471", &hints, &info), EAI_NONAME);
  EXPECT_EQ(info, nullptr);
}

}  // namespace
}  // namespace weft::cm
