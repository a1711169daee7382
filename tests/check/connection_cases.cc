// Objects of rdma_cm: ids, and the queues that they make.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <future>
#include <string>

#include "check/cases.h"
#include "check/pair.h"

namespace misuse {
namespace {

constexpr std::size_t message_bytes = 64;

// An endpoint at a port of this host; the passive one takes any port. All its sends are signaled.
rdma_cm_id* make_endpoint(const std::string& port, bool passive) {
  rdma_addrinfo hints{};
  hints.ai_flags = passive ? RAI_PASSIVE : 0;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* address = nullptr;
  need(rdma_getaddrinfo("127.0.0.1", port.c_str(), &hints, &address) == 0, "rdma_getaddrinfo");
  ibv_qp_init_attr wanted{};
  wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 4;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.sq_sig_all = 1;
  rdma_cm_id* made = nullptr;
  need(rdma_create_ep(&made, address, nullptr, &wanted) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(address);
  return made;
}

// Connects, and takes one message.
void take_message(const std::string& port) {
  rdma_cm_id* id = make_endpoint(port, false);
  std::array<char, message_bytes> memory{};
  ibv_mr* region = rdma_reg_msgs(id, memory.data(), memory.size());
  need(region != nullptr, "rdma_reg_msgs");
  need(rdma_post_recv(id, nullptr, memory.data(), memory.size(), region) == 0, "rdma_post_recv");
  need(rdma_connect(id, nullptr) == 0, "rdma_connect");
  ibv_wc completion{};
  need(rdma_get_recv_comp(id, &completion) == 1, "rdma_get_recv_comp");
  need(rdma_disconnect(id) == 0, "rdma_disconnect");
  need(rdma_dereg_mr(region) == 0, "rdma_dereg_mr");
  rdma_destroy_ep(id);
}

// The queue pair of a connection request has the attributes of its listener.
void posted_region_of_a_listener(bool bad) {
  rdma_cm_id* listener = make_endpoint("0", true);
  need(rdma_listen(listener, 0) == 0, "rdma_listen");
  const std::string port = std::to_string(ntohs(rdma_get_src_port(listener)));
  auto peer = std::async(std::launch::async, [&] { take_message(port); });
  rdma_cm_id* id = nullptr;
  need(rdma_get_request(listener, &id) == 0, "rdma_get_request");
  need(rdma_accept(id, nullptr) == 0, "rdma_accept");
  std::array<char, message_bytes> memory{};
  ibv_mr* region = rdma_reg_msgs(id, memory.data(), memory.size());
  need(region != nullptr, "rdma_reg_msgs");
  need(rdma_post_send(id, nullptr, memory.data(), memory.size(), region, 0) == 0, "rdma_post_send");
  ibv_wc completion{};
  if (!bad) need(rdma_get_send_comp(id, &completion) == 1, "rdma_get_send_comp");
  need(rdma_dereg_mr(region) == 0, "rdma_dereg_mr");
  if (bad) need(rdma_get_send_comp(id, &completion) == 1, "rdma_get_send_comp");
  peer.get();
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

}  // namespace

Cases connection_cases() {
  return {
      {"posted-region.of-a-listener", posted_region_of_a_listener},
  };
}

}  // namespace misuse
