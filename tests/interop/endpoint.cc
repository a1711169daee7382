#include "interop/endpoint.h"

#include <poll.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace interop {

namespace {

constexpr int kResolveMs = 10'000;

}  // namespace

void fail(const char* what) {
  std::printf("failed: %s: %s\n", what, std::strerror(errno));
  std::fflush(stdout);
  std::_Exit(1);
}

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Address::Address(const char* host, const char* port, bool passive) {
  rdma_addrinfo hints{};
  hints.ai_flags = passive ? RAI_PASSIVE : 0;
  hints.ai_port_space = RDMA_PS_TCP;
  must(rdma_getaddrinfo(host, port, &hints, &info), "rdma_getaddrinfo");
}

rdma_cm_id* listen(rdma_event_channel* channel, const char* host, const char* port) {
  const Address address(host, port, true);
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  must(rdma_bind_addr(id, address.info->ai_src_addr), "rdma_bind_addr");
  must(rdma_listen(id, 8), "rdma_listen");
  return id;
}

rdma_cm_event* expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->event != type) {
    std::printf("failed: %s, status %d, instead of %s\n", rdma_event_str(event->event),
                event->status, rdma_event_str(type));
    std::fflush(stdout);
    std::_Exit(1);
  }
  return event;
}

rdma_cm_id* resolve(rdma_event_channel* channel, const char* host, const char* port) {
  const Address address(host, port, false);
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  must(rdma_resolve_addr(id, nullptr, address.info->ai_dst_addr, kResolveMs), "rdma_resolve_addr");
  rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
  must(rdma_resolve_route(id, kResolveMs), "rdma_resolve_route");
  rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
  return id;
}

Region region_of(const rdma_conn_param& parameters) {
  Region region;
  if (parameters.private_data_len < sizeof region) {
    errno = EPROTO;
    fail("the peer's private data");
  }
  std::memcpy(&region, parameters.private_data, sizeof region);
  return region;
}

namespace {

rdma_conn_param parameters_for(const Region& region, std::uint8_t depth, std::uint32_t qp_number) {
  rdma_conn_param parameters{};
  parameters.private_data = &region;
  parameters.private_data_len = sizeof region;
  parameters.responder_resources = depth;
  parameters.initiator_depth = depth;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 1;  // a Send without a receive must fail before the test times out
  parameters.qp_num = qp_number;
  return parameters;
}

}  // namespace

int connect(rdma_cm_id* id, const Region& region, std::uint8_t depth) {
  rdma_conn_param parameters = parameters_for(region, depth, 0);
  return rdma_connect(id, &parameters);
}

int accept(rdma_cm_id* id, const Region& region, std::uint8_t depth, std::uint32_t qp_number) {
  rdma_conn_param parameters = parameters_for(region, depth, qp_number);
  return rdma_accept(id, &parameters);
}

Endpoint::Endpoint(rdma_cm_id* identifier, std::size_t bytes, int access, Depths depths,
                   Maker maker)
    : id(identifier), memory_(bytes, kFill) {
  pd = must(ibv_alloc_pd(id->verbs), "ibv_alloc_pd");
  completions = must(ibv_create_comp_channel(id->verbs), "ibv_create_comp_channel");
  const auto entries = static_cast<int>(depths.sends + depths.receives);
  cq = must(ibv_create_cq(id->verbs, entries, nullptr, completions, 0), "ibv_create_cq");
  must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
  all = must(ibv_reg_mr(pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
  middle =
      must(ibv_reg_mr(pd, memory_.data() + quarter(), 2 * quarter(), static_cast<unsigned>(access)),
           "ibv_reg_mr");

  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = depths.sends;
  attributes.cap.max_recv_wr = depths.receives;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  if (maker == Maker::program) {
    qp = must(ibv_create_qp(pd, &attributes), "ibv_create_qp");
  } else {
    must(rdma_create_qp(id, pd, &attributes), "rdma_create_qp");
    qp = id->qp;
  }
}

void Endpoint::destroy() {
  if (id == nullptr) return;
  if (id->qp != nullptr) {
    rdma_destroy_qp(id);
  } else {
    must(ibv_destroy_qp(qp), "ibv_destroy_qp");
  }
  must(ibv_dereg_mr(middle), "ibv_dereg_mr");
  must(ibv_dereg_mr(all), "ibv_dereg_mr");
  must(ibv_destroy_cq(cq), "ibv_destroy_cq");
  must(ibv_destroy_comp_channel(completions), "ibv_destroy_comp_channel");
  must(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  must(rdma_destroy_id(id), "rdma_destroy_id");
  id = nullptr;
}

ibv_sge Endpoint::slice(std::size_t offset, std::size_t bytes) const {
  return {reinterpret_cast<std::uintptr_t>(memory_.data() + offset),
          static_cast<std::uint32_t>(bytes), all->lkey};
}

Region Endpoint::shared() const {
  return {reinterpret_cast<std::uintptr_t>(middle->addr), middle->rkey,
          static_cast<std::uint32_t>(middle->length)};
}

int Endpoint::receive(std::uint64_t wr_id, ibv_sge slice) const {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &slice;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &request, &bad);
}

int Endpoint::post(std::uint64_t wr_id, ibv_sge slice, ibv_wr_opcode opcode, const Region& remote,
                   std::size_t offset) const {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &slice;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote.address + offset;
  request.wr.rdma.rkey = remote.rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

int Endpoint::send(std::uint64_t wr_id, ibv_sge slice) const {
  return post(wr_id, slice, IBV_WR_SEND, {}, 0);
}

int Endpoint::write(std::uint64_t wr_id, ibv_sge slice, const Region& target,
                    std::size_t offset) const {
  return post(wr_id, slice, IBV_WR_RDMA_WRITE, target, offset);
}

int Endpoint::read(std::uint64_t wr_id, ibv_sge slice, const Region& source,
                   std::size_t offset) const {
  return post(wr_id, slice, IBV_WR_RDMA_READ, source, offset);
}

bool Endpoint::wait_for_completion(ibv_wc& completion, int timeout_ms) const {
  const std::int64_t end = now_ns() + std::int64_t{timeout_ms} * 1'000'000;
  while (true) {
    const int found = ibv_poll_cq(cq, 1, &completion);
    if (found < 0) fail("ibv_poll_cq");
    if (found > 0) return true;
    must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    // completed before the notification was requested
    if (ibv_poll_cq(cq, 1, &completion) > 0) return true;
    const auto left_ms = static_cast<int>((end - now_ns()) / 1'000'000);
    pollfd waited{completions->fd, POLLIN, 0};
    if (left_ms <= 0 || ::poll(&waited, 1, left_ms) <= 0) return false;
    ibv_cq* which = nullptr;
    void* context = nullptr;
    must(ibv_get_cq_event(completions, &which, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(which, 1);
  }
}

}  // namespace interop
