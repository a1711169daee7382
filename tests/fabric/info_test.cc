// fi_getinfo: which hints the provider accepts, and what it returns.
#include <netinet/in.h>

#include <cstring>
#include <functional>

#include "fabric/sides.h"

namespace weft::fabric {
namespace {

int find(const fi_info* wanted, Info* found = nullptr) {
  fi_info* list = nullptr;
  const int answer = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, wanted, &list);
  Info owned(list);
  if (found) *found = std::move(owned);
  return answer;
}

TEST(FabricInfo, OffersAStreamWithTheDefaultsOfRstream) {
  const Info info = get_info(nullptr, nullptr, 0, hints().get());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->next, nullptr);
  EXPECT_STREQ(info->fabric_attr->prov_name, "weft");
  EXPECT_EQ(info->mode, 0U);
  EXPECT_EQ(info->caps & FI_MSG, FI_MSG);
  EXPECT_EQ(info->caps & (FI_RMA | FI_TAGGED | FI_ATOMIC), 0U);
  EXPECT_EQ(info->ep_attr->type, FI_EP_SOCK_STREAM);
  EXPECT_EQ(info->ep_attr->protocol, static_cast<std::uint32_t>(FI_PROTO_RSTREAM));
  EXPECT_EQ(info->ep_attr->protocol_version, 1U);
  EXPECT_EQ(info->domain_attr->threading, FI_THREAD_SAFE);
  EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
  EXPECT_EQ(info->domain_attr->mr_mode, 0);
  EXPECT_EQ(info->tx_attr->size, 384U);
  EXPECT_EQ(info->rx_attr->size, 384U);
  EXPECT_EQ(info->tx_attr->msg_order, FI_ORDER_SAS);
}

TEST(FabricInfo, IwarpIsOfferedOnRequestOnly) {
  const Info info = get_info(nullptr, nullptr, 0, hints(FI_PROTO_IWARP).get());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->ep_attr->protocol, static_cast<std::uint32_t>(FI_PROTO_IWARP));
  const Info again = get_info(nullptr, nullptr, 0, hints().get());
  EXPECT_EQ(again->ep_attr->protocol, static_cast<std::uint32_t>(FI_PROTO_RSTREAM))
      << "a request is nothing that stays";
}

TEST(FabricInfo, WhatIsAskedForAndThereIsGiven) {
  const Info wanted = hints();
  wanted->domain_attr->data_progress = FI_PROGRESS_AUTO;
  wanted->domain_attr->threading = FI_THREAD_DOMAIN;
  wanted->tx_attr->size = 16;
  wanted->mode = FI_CONTEXT;
  wanted->addr_format = FI_SOCKADDR_IN;
  const Info info = get_info(nullptr, nullptr, 0, wanted.get());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_AUTO);
  EXPECT_EQ(info->tx_attr->size, 16U);
  EXPECT_EQ(info->mode, 0U) << "nothing is needed of the program";
  EXPECT_EQ(info->addr_format, static_cast<std::uint32_t>(FI_SOCKADDR_IN));
}

TEST(FabricInfo, WhatIsNotThereIsNotOffered) {
  const std::pair<const char*, std::function<void(fi_info&)>> refused[] = {
      {"another type", [](fi_info& info) { info.ep_attr->type = FI_EP_MSG; }},
      {"another protocol", [](fi_info& info) { info.ep_attr->protocol = FI_PROTO_RXM; }},
      {"a later version", [](fi_info& info) { info.ep_attr->protocol_version = 2; }},
      {"RMA", [](fi_info& info) { info.caps |= FI_RMA; }},
      {"tagged messages", [](fi_info& info) { info.caps |= FI_TAGGED; }},
      {"data with completions", [](fi_info& info) { info.domain_attr->cq_data_size = 8; }},
      {"two transmit contexts", [](fi_info& info) { info.ep_attr->tx_ctx_cnt = 2; }},
      {"a queue of one", [](fi_info& info) { info.rx_attr->size = 1; }},
      {"other addresses", [](fi_info& info) { info.addr_format = FI_SOCKADDR_IB; }},
      {"another domain", [](fi_info& info) { info.domain_attr->name = strdup("mlx5_0"); }},
      {"another fabric", [](fi_info& info) { info.fabric_attr->name = strdup("10.0.0.0/8"); }},
  };
  for (const auto& [what, change] : refused) {
    const Info wanted = hints();
    change(*wanted);
    EXPECT_EQ(find(wanted.get()), -FI_ENODATA) << what;
  }
}

TEST(FabricInfo, NodeAndServiceAreTheSourceOrTheDestination) {
  const Info to = get_info("127.0.0.1", "7471", 0, hints().get());
  ASSERT_TRUE(to);
  sockaddr_in address{};
  ASSERT_EQ(to->src_addrlen, sizeof address);
  std::memcpy(&address, to->src_addr, sizeof address);
  EXPECT_EQ(address.sin_port, 0);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);
  ASSERT_EQ(to->dest_addrlen, sizeof address);
  std::memcpy(&address, to->dest_addr, sizeof address);
  EXPECT_EQ(ntohs(address.sin_port), 7471);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);

  const Info from = get_info(nullptr, "7471", FI_SOURCE, hints().get());
  ASSERT_TRUE(from);
  EXPECT_EQ(from->dest_addr, nullptr);
  std::memcpy(&address, from->src_addr, sizeof address);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_ANY);
}

// fabtests' getinfo_test requires it.
TEST(FabricInfo, HasASourceAddressInAnyCase) {
  for (const int format : {int{FI_SOCKADDR_IN}, int{FI_SOCKADDR_IN6}}) {
    const Info wanted = hints();
    wanted->addr_format = static_cast<std::uint32_t>(format);
    const Info found = get_info(nullptr, nullptr, 0, wanted.get());
    ASSERT_TRUE(found);
    sa_family_t family = 0;
    ASSERT_GE(found->src_addrlen, sizeof family);
    std::memcpy(&family, found->src_addr, sizeof family);
    EXPECT_EQ(family, format == FI_SOCKADDR_IN ? AF_INET : AF_INET6);
    EXPECT_EQ(found->dest_addr, nullptr);
  }
}

TEST(FabricInfo, ANameThatIsNoneFindsNothing) {
  fi_info* found = nullptr;
  EXPECT_EQ(
      fi_getinfo(FI_VERSION(1, 17), "256.0.0.1", "7471", FI_NUMERICHOST, hints().get(), &found),
      -FI_ENODATA);
}

}  // namespace
}  // namespace weft::fabric
