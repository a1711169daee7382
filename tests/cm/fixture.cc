#include "cm/fixture.h"

#include <arpa/inet.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "device/addresses.h"

namespace weft::cm {

sockaddr_in ipv4(const char* text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

sockaddr_in6 ipv6(const char* text, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  inet_pton(AF_INET6, text, &address.sin6_addr);
  return address;
}

bool has_ipv6_loopback() {
  const auto locals = device::local_addresses();
  for (const auto& local : *locals) {
    if (local.loopback && local.address.ss_family == AF_INET6) return true;
  }
  return false;
}

void CmTest::SetUp() {
  const char* personality = std::getenv("WEFT_TEST_PERSONALITY");
  if (personality && std::string_view(personality) == "iwarp") {
    settings_.personality = device::Personality::iwarp;
  }
  if (personality && std::string_view(personality) == "ib") {
    settings_.personality = device::Personality::ib;
  }
  const char* carrier = std::getenv("WEFT_TEST_CARRIER");
  if (carrier && std::string_view(carrier) == "tcp") {
    settings_.same_host = device::SameHost::off;
  }
  if (carrier && std::string_view(carrier) == "staged" &&
      settings_.same_host == device::SameHost::automatic) {
    settings_.same_host = device::SameHost::staged;
  }
  auto made = device::Device::create(settings_);
  ASSERT_TRUE(made.ok()) << made.error();
  device_ = std::move(*made);
  context_ = std::make_unique<device::Context>(*device_);
  manager_ = std::make_unique<Manager>([this] { return context_.get(); }, options_);
  active_ = manager_->create_event_channel();
  passive_ = manager_->create_event_channel();
  ASSERT_NE(active_, nullptr);
  ASSERT_NE(passive_, nullptr);
}

void CmTest::TearDown() {
  if (!manager_) return;  // a test that was skipped before SetUp() was called here
  if (listener_) manager_->destroy_id(listener_);
  manager_->destroy_event_channel(active_);
  manager_->destroy_event_channel(passive_);
  manager_.reset();
  context_.reset();
  device_.reset();
}

CmTest::Event CmTest::next(rdma_event_channel* channel) {
  pollfd entry{channel->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (poll(&entry, 1, patience_ms) != 1) {
    ADD_FAILURE() << "no event";
  } else {
    EXPECT_EQ(manager_->get_cm_event(channel, &event), 0);
  }
  return Event(event, Acknowledge{manager_.get()});
}

CmTest::Event CmTest::expect(rdma_event_channel* channel, rdma_cm_event_type type, int status) {
  auto event = next(channel);
  if (!event) return event;
  EXPECT_STREQ(cm::event_str(event->event), cm::event_str(type));
  EXPECT_EQ(event->status, status) << strerror(-event->status);
  return event;
}

bool CmTest::quiet(rdma_event_channel* channel) {
  pollfd entry{channel->fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 0;
}

rdma_cm_id* CmTest::make_id(rdma_event_channel* channel, void* context) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(manager_->create_id(channel, &id, context, RDMA_PS_TCP), 0);
  return id;
}

rdma_cm_id* CmTest::make_listener(rdma_event_channel* channel, int family, int backlog) {
  rdma_cm_id* id = make_id(channel);
  auto v4 = ipv4("127.0.0.1", 0);
  auto v6 = ipv6("::1", 0);
  auto* address =
      family == AF_INET ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  EXPECT_EQ(manager_->bind_addr(id, address), 0) << strerror(errno);
  EXPECT_EQ(manager_->listen(id, backlog), 0) << strerror(errno);
  EXPECT_NE(Manager::get_src_port(id), 0);
  return id;
}

rdma_cm_id* CmTest::make_client_to(rdma_event_channel* channel, sockaddr* destination) {
  rdma_cm_id* id = make_id(channel);
  EXPECT_EQ(manager_->resolve_addr(id, nullptr, destination, 2000), 0) << strerror(errno);
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(manager_->resolve_route(id, 2000), 0);
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return id;
}

rdma_cm_id* CmTest::make_client(rdma_event_channel* channel, rdma_cm_id* listener) {
  return make_client_to(channel, rdma_get_local_addr(listener));
}

sockaddr_storage CmTest::listening_address() const {
  sockaddr_storage address{};
  std::memcpy(&address, rdma_get_local_addr(listener_), sizeof(sockaddr_in));
  return address;
}

ibv_qp_init_attr CmTest::queue_pair_attributes() const {
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 16,
                    .max_recv_wr = 16,
                    .max_send_sge = 2,
                    .max_recv_sge = 2,
                    .max_inline_data = 64};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  return attributes;
}

void CmTest::make_queue_pair(rdma_cm_id* id) {
  auto attributes = queue_pair_attributes();
  ASSERT_EQ(manager_->create_qp(id, nullptr, &attributes), 0) << strerror(errno);
}

void CmTest::destroy(rdma_cm_id* id) {
  manager_->destroy_qp(id);
  EXPECT_EQ(manager_->destroy_id(id), 0);
}

CmTest::Pair CmTest::connect_pair(rdma_conn_param client, rdma_conn_param server) {
  if (!listener_) listener_ = make_listener(passive_);
  Pair pair;
  pair.client = make_client(active_, listener_);
  make_queue_pair(pair.client);
  EXPECT_EQ(manager_->connect(pair.client, &client), 0) << strerror(errno);

  const auto data_of = [](const rdma_cm_event& event) {
    const auto& conn = event.param.conn;
    return std::string(static_cast<const char*>(conn.private_data), conn.private_data_len);
  };
  if (const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST)) {
    EXPECT_EQ(request->listen_id, listener_);
    pair.server = request->id;
    pair.client_data = data_of(*request);
    pair.request = request->param.conn;
  }
  make_queue_pair(pair.server);
  EXPECT_EQ(manager_->accept(pair.server, &server), 0) << strerror(errno);
  if (const auto event = expect(active_, RDMA_CM_EVENT_ESTABLISHED)) {
    EXPECT_EQ(event->id, pair.client);
    pair.server_data = data_of(*event);
    pair.client_established = event->param.conn;
  }
  if (const auto event = expect(passive_, RDMA_CM_EVENT_ESTABLISHED)) {
    EXPECT_EQ(event->id, pair.server);
    pair.server_established = event->param.conn;
  }
  return pair;
}

void CmTest::destroy(Pair& pair) {
  destroy(pair.client);
  destroy(pair.server);
}

ibv_wc completion_of(ibv_cq* cq) {
  ibv_wc completion{};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (ibv_poll_cq(cq, 1, &completion) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "no completion";
      break;
    }
  }
  return completion;
}

}  // namespace weft::cm
