#include "provider/connected_pair.h"

#include <netinet/in.h>

namespace weft::provider::testing {
namespace {

constexpr int timeout_ms = 5000;
constexpr std::uint32_t depth = 16;

sockaddr_in loopback(std::uint16_t port_be) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port_be;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

int End::post_receive(ibv_srq* srq) {
  ibv_sge sge = slice(static_cast<std::uint32_t>(buffer.size()));
  ibv_recv_wr request{};
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return srq ? ibv_post_srq_recv(srq, &request, &bad) : ibv_post_recv(id->qp, &request, &bad);
}

int End::post_send() {
  ibv_sge sge = slice(8);
  ibv_send_wr request{};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(id->qp, &request, &bad);
}

ibv_wc End::await_completion() {
  ibv_wc completion{};
  while (ibv_poll_cq(cq, 1, &completion) == 0) {
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    if (ibv_poll_cq(cq, 1, &completion) > 0) break;
    ibv_cq* which = nullptr;
    void* context = nullptr;
    EXPECT_EQ(embedded().get_cq_event(channel, &which, &context), 0);
    EXPECT_EQ(which, cq);
    embedded().ack_cq_events(cq, 1);
  }
  return completion;
}

void ConnectedPair::make_queues(End& end, ibv_srq* srq) {
  ibv_context* context = end.id->verbs;
  if (!end.pd) end.pd = table_.alloc_pd(context);
  end.channel = table_.create_comp_channel(context);
  if (extended_) {
    extended_->channel = end.channel;
    extended_->cq_context = &end;
    end.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, extended_));
  } else {
    end.cq = table_.create_cq(context, 2 * depth, &end, end.channel, 0);
  }
  ASSERT_NE(end.cq, nullptr);
  end.mr = table_.reg_mr(end.pd, end.buffer.data(), end.buffer.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = end.cq;
  attributes.srq = srq;
  attributes.cap = {depth, depth, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  ASSERT_EQ(table_.id_create_qp(end.id, end.pd, &attributes), 0);
}

rdma_cm_id* ConnectedPair::expect(rdma_cm_event_type wanted) {
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(table_.get_cm_event(events_, &event), 0);
  EXPECT_STREQ(table_.event_str(event->event), table_.event_str(wanted));
  rdma_cm_id* id = event->id;
  EXPECT_EQ(table_.ack_cm_event(event), 0);
  return id;
}

void ConnectedPair::connect(std::uint32_t srq_size) {
  events_ = table_.create_event_channel();
  ASSERT_EQ(table_.create_id(events_, &listener_, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address = loopback(0);
  ASSERT_EQ(table_.bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)), 0);
  ASSERT_EQ(table_.listen(listener_, 1), 0);

  address = loopback(table_.get_src_port(listener_));
  ASSERT_EQ(table_.create_id(events_, &active_.id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(
      table_.resolve_addr(active_.id, nullptr, reinterpret_cast<sockaddr*>(&address), timeout_ms),
      0);
  expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(table_.resolve_route(active_.id, timeout_ms), 0);
  expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_queues(active_, nullptr);
  rdma_conn_param parameters{};
  ASSERT_EQ(table_.connect(active_.id, &parameters), 0);

  passive_.id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  passive_.pd = table_.alloc_pd(passive_.id->verbs);
  if (srq_size > 0) {
    ibv_srq_init_attr attributes{.srq_context = nullptr, .attr = {srq_size, 1, 0}};
    srq_ = table_.create_srq(passive_.pd, &attributes);
    ASSERT_NE(srq_, nullptr);
  }
  make_queues(passive_, srq_);
  ASSERT_EQ(table_.accept(passive_.id, &parameters), 0);
  expect(RDMA_CM_EVENT_ESTABLISHED);
  expect(RDMA_CM_EVENT_ESTABLISHED);
}

void ConnectedPair::destroy() {
  for (End* end : {&active_, &passive_}) {
    if (!end->id) continue;
    table_.id_destroy_qp(end->id);
    EXPECT_EQ(table_.destroy_cq(end->cq), 0);
    EXPECT_EQ(table_.destroy_comp_channel(end->channel), 0);
    EXPECT_EQ(table_.dereg_mr(end->mr), 0);
    if (end == &passive_ && srq_) {
      EXPECT_EQ(table_.destroy_srq(srq_), 0);
    }
    EXPECT_EQ(table_.dealloc_pd(end->pd), 0);
    EXPECT_EQ(table_.destroy_id(end->id), 0);
    end->id = nullptr;
  }
  if (listener_) {
    EXPECT_EQ(table_.destroy_id(listener_), 0);
  }
  listener_ = nullptr;
  if (events_) table_.destroy_event_channel(events_);
  events_ = nullptr;
}

}  // namespace weft::provider::testing
