// Options, states and names of endpoints, and the calls that are not supported.
#include <netinet/in.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstring>

#include "fabric/sides.h"

namespace weft::fabric {
namespace {

class FabricEndpoint : public testing::Test {
 protected:
  template <typename T>
  int set(int name, T value, int level = FI_OPT_ENDPOINT) {
    return fi_setopt(&endpoint->fid, level, name, &value, sizeof value);
  }
  template <typename T>
  T get(int name) {
    T value{};
    std::size_t bytes = sizeof value;
    EXPECT_EQ(fi_getopt(&endpoint->fid, FI_OPT_ENDPOINT, name, &value, &bytes), 0);
    EXPECT_EQ(bytes, sizeof value);
    return value;
  }

  Info info = get_info("127.0.0.1", "1", 0, hints().get());
  Ground ground{*info};
  Opened<fid_ep> endpoint = ground.endpoint(*info);
};

TEST_F(FabricEndpoint, OptionsHaveTheDefaultsOfRstreamAndKeepWhatTheyAreTold) {
  EXPECT_EQ(get<std::uint32_t>(FI_OPT_SEND_BUF_SIZE), 32768U);
  EXPECT_EQ(get<std::uint32_t>(FI_OPT_RECV_BUF_SIZE), 32768U);
  EXPECT_EQ(get<std::uint16_t>(FI_OPT_TX_SIZE), 384U);
  EXPECT_EQ(get<std::uint16_t>(FI_OPT_RX_SIZE), 384U);
  EXPECT_GT(get<std::size_t>(FI_OPT_CM_DATA_SIZE), 0U);
  EXPECT_EQ(set<std::uint32_t>(FI_OPT_SEND_BUF_SIZE, 1), 0);
  EXPECT_EQ(set<std::uint32_t>(FI_OPT_RECV_BUF_SIZE, 4 << 20), 0);
  EXPECT_EQ(set<std::uint16_t>(FI_OPT_TX_SIZE, 2), 0);
  EXPECT_EQ(set<std::uint16_t>(FI_OPT_RX_SIZE, 65535), 0);
  EXPECT_EQ(get<std::uint32_t>(FI_OPT_SEND_BUF_SIZE), 1U);
  EXPECT_EQ(get<std::uint32_t>(FI_OPT_RECV_BUF_SIZE), 4U << 20);
  EXPECT_EQ(get<std::uint16_t>(FI_OPT_TX_SIZE), 2U);
  EXPECT_EQ(get<std::uint16_t>(FI_OPT_RX_SIZE), 65535U);
}

TEST_F(FabricEndpoint, WrongOptionsAreRefused) {
  EXPECT_EQ(set<std::uint32_t>(FI_OPT_SEND_BUF_SIZE, 4096, FI_OPT_ENDPOINT + 1), -FI_ENOPROTOOPT);
  EXPECT_EQ(set<std::size_t>(FI_OPT_MIN_MULTI_RECV, 64), -FI_ENOPROTOOPT);
  EXPECT_EQ(set<std::uint64_t>(FI_OPT_SEND_BUF_SIZE, 4096), -FI_EINVAL) << "its length";
  EXPECT_EQ(set<std::uint32_t>(FI_OPT_RX_SIZE, 100), -FI_EINVAL) << "its length";
  EXPECT_EQ(set<std::uint32_t>(FI_OPT_RECV_BUF_SIZE, 0), -FI_EINVAL);
  EXPECT_EQ(set<std::uint16_t>(FI_OPT_RX_SIZE, 1), -FI_EINVAL);
  EXPECT_EQ(get<std::uint16_t>(FI_OPT_RX_SIZE), 384U) << "a refused value changes nothing";
  std::uint8_t small = 0;
  std::size_t bytes = sizeof small;
  EXPECT_EQ(fi_getopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &small, &bytes),
            -FI_ETOOSMALL);
  EXPECT_EQ(bytes, sizeof(std::uint16_t));
}

TEST_F(FabricEndpoint, OptionsAreSettledOnceItIsEnabled) {
  EXPECT_EQ(fi_enable(endpoint.get()), 0);
  EXPECT_EQ(set<std::uint32_t>(FI_OPT_SEND_BUF_SIZE, 4096), -FI_EOPBADSTATE);
  EXPECT_EQ(set<std::size_t>(FI_OPT_MIN_MULTI_RECV, 64), -FI_ENOPROTOOPT);
  EXPECT_EQ(get<std::uint32_t>(FI_OPT_SEND_BUF_SIZE), 32768U);
  EXPECT_EQ(fi_enable(endpoint.get()), 0) << "once more changes nothing";
}

TEST_F(FabricEndpoint, WithoutAnEventQueueItIsNotEnabled) {
  fid_ep* opened = nullptr;
  ASSERT_EQ(fi_endpoint(ground.domain.get(), info.get(), &opened, nullptr), 0);
  const Opened<fid_ep> alone(opened);
  EXPECT_EQ(fi_enable(alone.get()), -FI_ENOEQ);
  EXPECT_EQ(fi_ep_bind(alone.get(), &ground.domain->fid, 0), -FI_EINVAL);
}

TEST_F(FabricEndpoint, WhatIsInUseIsNotClosed) {
  EXPECT_EQ(fi_close(&ground.events->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&ground.domain->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&ground.fabric->fid), -FI_EBUSY);
}

TEST_F(FabricEndpoint, NothingIsSentBeforeItIsConnected) {
  char byte = 0;
  EXPECT_EQ(fi_send(endpoint.get(), &byte, 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  EXPECT_EQ(fi_enable(endpoint.get()), 0);
  EXPECT_EQ(fi_send(endpoint.get(), &byte, 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  EXPECT_EQ(fi_recv(endpoint.get(), &byte, 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  EXPECT_EQ(fi_shutdown(endpoint.get(), 0), -FI_ENOTCONN);
  sockaddr_in peer{};
  std::size_t bytes = sizeof peer;
  EXPECT_EQ(fi_getpeer(endpoint.get(), &peer, &bytes), -FI_ENOTCONN);
}

TEST_F(FabricEndpoint, WhatTheProviderDoesNotHaveAnswersEnosys) {
  fi_cq_attr queue{};
  fid_cq* opened_queue = nullptr;
  EXPECT_EQ(fi_cq_open(ground.domain.get(), &queue, &opened_queue, nullptr), -FI_ENOSYS);
  fi_cntr_attr counter{};
  fid_cntr* opened_counter = nullptr;
  EXPECT_EQ(fi_cntr_open(ground.domain.get(), &counter, &opened_counter, nullptr), -FI_ENOSYS);
  fi_av_attr vector{};
  fid_av* opened_vector = nullptr;
  EXPECT_EQ(fi_av_open(ground.domain.get(), &vector, &opened_vector, nullptr), -FI_ENOSYS);
  fid_mr* region = nullptr;
  char byte = 0;
  EXPECT_EQ(fi_mr_reg(ground.domain.get(), &byte, 1, FI_SEND, 0, 0, 0, &region, nullptr),
            -FI_ENOSYS);
  EXPECT_EQ(fi_read(endpoint.get(), &byte, 1, nullptr, 0, 0, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_tsend(endpoint.get(), &byte, 1, nullptr, 0, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_inject(endpoint.get(), &byte, 1, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_senddata(endpoint.get(), &byte, 1, nullptr, 0, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_sendmsg(endpoint.get(), nullptr, FI_PEEK | FI_MORE), -FI_ENOSYS);
  EXPECT_EQ(fi_listen(reinterpret_cast<fid_pep*>(endpoint.get())), -FI_ENOSYS);
}

TEST(FabricPassiveEndpoint, BindsWhenItIsMadeAndKnowsItsPort) {
  const Info info = get_info("127.0.0.1", "0", FI_SOURCE, hints().get());
  const Ground ground(*info);
  fid_pep* opened = nullptr;
  ASSERT_EQ(fi_passive_ep(ground.fabric.get(), info.get(), &opened, nullptr), 0);
  const Opened<fid_pep> listener(opened);
  EXPECT_NE(port_of(*listener), "0");
  EXPECT_EQ(fi_listen(listener.get()), -FI_ENOEQ);
  ASSERT_EQ(fi_pep_bind(listener.get(), &ground.events->fid, 0), 0);
  int backlog = 5;
  EXPECT_EQ(fi_control(&listener->fid, FI_BACKLOG, &backlog), 0);
  EXPECT_EQ(fi_listen(listener.get()), 0);
  EXPECT_EQ(fi_control(&listener->fid, FI_BACKLOG, &backlog), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_setname(&listener->fid, info->src_addr, info->src_addrlen), -FI_EOPBADSTATE);
  char small[4];
  std::size_t bytes = sizeof small;
  EXPECT_EQ(fi_getname(&listener->fid, small, &bytes), -FI_ETOOSMALL);
  EXPECT_EQ(bytes, sizeof(sockaddr_in));
}

TEST(FabricPassiveEndpoint, APortThatIsTakenIsRefused) {
  const Sides sides;
  const std::string port = port_of(*sides.listener);
  const Info info = get_info("127.0.0.1", port.c_str(), FI_SOURCE, hints().get());
  fid_pep* opened = nullptr;
  EXPECT_EQ(fi_passive_ep(sides.ground.fabric.get(), info.get(), &opened, nullptr), -FI_EADDRINUSE);
}

TEST(FabricNames, AreThoseOfBothEnds) {
  const Sides sides;
  const auto name = [](auto ask) {
    sockaddr_in address{};
    std::size_t bytes = sizeof address;
    EXPECT_EQ(ask(&address, &bytes), 0);
    return std::pair(ntohl(address.sin_addr.s_addr), ntohs(address.sin_port));
  };
  const auto local = [&](fid_ep& of) {
    return name([&](void* to, std::size_t* room) { return fi_getname(&of.fid, to, room); });
  };
  const auto peer = [&](fid_ep& of) {
    return name([&](void* to, std::size_t* room) { return fi_getpeer(&of, to, room); });
  };
  EXPECT_EQ(local(*sides.active), peer(*sides.passive));
  EXPECT_EQ(local(*sides.passive), peer(*sides.active));
  EXPECT_EQ(std::to_string(local(*sides.passive).second), port_of(*sides.listener));
}

}  // namespace
}  // namespace weft::fabric
