// One process with one device and one manager; both ends of every connection are in it, over
// loopback.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "cm/cm.h"
#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/device.h"

namespace weft::cm {

// Long enough for a sanitizer on a busy machine; a test that passes never waits for it.
inline constexpr int patience_ms = 30'000;

sockaddr_in ipv4(const char* text, std::uint16_t port);
sockaddr_in6 ipv6(const char* text, std::uint16_t port);
bool has_ipv6_loopback();

class CmTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  struct Acknowledge {
    Manager* manager = nullptr;
    void operator()(rdma_cm_event* event) const { manager->ack_cm_event(event); }
  };
  using Event = std::unique_ptr<rdma_cm_event, Acknowledge>;

  // The next event; null, with a test failure, where none arrives.
  Event next(rdma_event_channel* channel);
  // The same, for an event that must be of this type.
  Event expect(rdma_event_channel* channel, rdma_cm_event_type type, int status = 0);
  bool quiet(rdma_event_channel* channel);

  rdma_cm_id* make_id(rdma_event_channel* channel, void* context = nullptr);
  // Bound to 127.0.0.1 (or ::1), and listening.
  rdma_cm_id* make_listener(rdma_event_channel* channel, int family = AF_INET, int backlog = 0);
  // Of listener_, which is there from the first connect_pair() on.
  [[nodiscard]] sockaddr_storage listening_address() const;
  // A client with a resolved route to `listener`.
  rdma_cm_id* make_client(rdma_event_channel* channel, rdma_cm_id* listener);
  rdma_cm_id* make_client_to(rdma_event_channel* channel, sockaddr* destination);
  ibv_qp_init_attr queue_pair_attributes() const;
  void make_queue_pair(rdma_cm_id* id);
  void destroy(rdma_cm_id* id);

  struct Pair {
    rdma_cm_id* client = nullptr;
    rdma_cm_id* server = nullptr;
    std::string client_data;  // received by the server, and the other way round
    std::string server_data;
    rdma_conn_param request{};  // as in the events, without the data
    rdma_conn_param client_established{};
    rdma_conn_param server_established{};
  };
  // Client and server of a new connection, both established. Depths as for rdma_connect and
  // rdma_accept.
  Pair connect_pair(rdma_conn_param client = {}, rdma_conn_param server = {});
  void destroy(Pair& pair);

  device::Settings settings_;
  Options options_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<Manager> manager_;
  rdma_event_channel* active_ = nullptr;
  rdma_event_channel* passive_ = nullptr;
  rdma_cm_id* listener_ = nullptr;  // of connect_pair()
};

// Polls `cq` until a completion arrives.
ibv_wc completion_of(ibv_cq* cq);

}  // namespace weft::cm
