#include "check/pair.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace misuse {
namespace {

void initialize(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = Pair::all_rights;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  need(ibv_modify_qp(qp, &attributes, mask) == 0, "ibv_modify_qp to INIT");
}

ibv_qp* make_queue_pair(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq, const Options& options) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = cq;
  wanted.recv_cq = cq;
  wanted.srq = srq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = options.signal_all ? 1 : 0;
  wanted.cap.max_send_wr = wanted.cap.max_recv_wr = options.requests;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = options.inline_bytes;
  ibv_qp* made = ibv_create_qp(pd, &wanted);
  need(made != nullptr, "ibv_create_qp");
  initialize(made);
  return made;
}

void connect(ibv_qp* qp, std::uint32_t peer, const ibv_gid& gid, std::uint8_t rnr_retry) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = gid;
  attributes.ah_attr.grh.hop_limit = 1;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  need(ibv_modify_qp(qp, &attributes, mask) == 0, "ibv_modify_qp to RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = rnr_retry;
  attributes.max_rd_atomic = 1;
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
  need(ibv_modify_qp(qp, &attributes, mask) == 0, "ibv_modify_qp to RTS");
}

ibv_srq* make_shared_queue(ibv_pd* pd, const Options& options) {
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = options.requests;
  wanted.attr.max_sge = 1;
  ibv_srq* made = ibv_create_srq(pd, &wanted);
  need(made != nullptr, "ibv_create_srq");
  return made;
}

ibv_cq* make_completion_queue(ibv_context* context, const Options& options,
                              ibv_comp_channel* channel) {
  if (!options.extended) {
    return ibv_create_cq(context, options.entries, nullptr, channel, 0);
  }
  ibv_cq_ex* made = ibv_create_cq_ex(context, options.extended);
  return made ? ibv_cq_ex_to_cq(made) : nullptr;
}

}  // namespace

void need(bool right, const char* what) {
  if (right) return;
  std::printf("failed: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

Pair::Pair(const Options& options) {
  ibv_device** list = ibv_get_device_list(nullptr);
  need(list && list[0], "ibv_get_device_list");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  need(context != nullptr, "ibv_open_device");
  pd = ibv_alloc_pd(context);
  need(pd != nullptr, "ibv_alloc_pd");
  mr = add_region(0, bytes, all_rights);
  remote_address = reinterpret_cast<std::uintptr_t>(memory.data());
  remote_key = mr->rkey;
  if (options.channel) channel = ibv_create_comp_channel(context);
  need(!options.channel || channel, "ibv_create_comp_channel");
  sender_cq = make_completion_queue(context, options, channel);
  receiver_cq = make_completion_queue(context, options, nullptr);
  need(sender_cq && receiver_cq, "ibv_create_cq");
  if (options.shared) srq = make_shared_queue(pd, options);
  sender = make_queue_pair(pd, sender_cq, nullptr, options);
  receiver = make_queue_pair(pd, receiver_cq, srq, options);
  if (!options.connected) return;
  rnr_retry = options.rnr_retry;
  need(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  connect(sender, receiver->qp_num, gid, rnr_retry);
  if (!options.late_receiver) connect_receiver();
}

void Pair::connect_receiver() {
  connect(receiver, sender->qp_num, gid, rnr_retry);
}

void Pair::connect_both(ibv_qp* sender, ibv_qp* receiver, const Pair& pair) {
  initialize(sender);
  initialize(receiver);
  connect(sender, receiver->qp_num, pair.gid, pair.rnr_retry);
  connect(receiver, sender->qp_num, pair.gid, pair.rnr_retry);
}

void Pair::close() {
  need(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(receiver) == 0, "ibv_destroy_qp");
  if (srq) need(ibv_destroy_srq(srq) == 0, "ibv_destroy_srq");
  need(ibv_destroy_cq(sender_cq) == 0 && ibv_destroy_cq(receiver_cq) == 0, "ibv_destroy_cq");
  if (channel) need(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
  need(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  need(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
  need(ibv_close_device(context) == 0, "ibv_close_device");
}

// An integer, because ibv_reg_mr() is a macro that looks whether its flags are a constant.
ibv_mr* Pair::add_region(std::size_t first, std::size_t size, unsigned access) {
  auto* at = reinterpret_cast<std::byte*>(memory.data()) + first;
  ibv_mr* made = ibv_reg_mr(pd, at, size, static_cast<int>(access));
  need(made != nullptr, "ibv_reg_mr");
  return made;
}

ibv_sge Pair::piece(std::size_t first, std::uint32_t size) const {
  return {.addr = reinterpret_cast<std::uintptr_t>(memory.data()) + first,
          .length = size,
          .lkey = mr->lkey};
}

void Pair::receive(std::size_t first, std::uint32_t size, std::uint64_t id) {
  ibv_sge list = piece(first, size);
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &list;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  need(ibv_post_recv(receiver, &request, &bad) == 0, "ibv_post_recv");
}

int Pair::send(ibv_wr_opcode opcode, ibv_sge list, unsigned flags, std::uint64_t id) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &list;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = flags;
  request.wr.rdma.remote_addr = remote_address;
  request.wr.rdma.rkey = remote_key;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(sender, &request, &bad);
}

void Pair::await_event(bool acknowledge) const {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  need(ibv_get_cq_event(channel, &cq, &cq_context) == 0, "ibv_get_cq_event");
  if (acknowledge) ibv_ack_cq_events(cq, 1);
}

ibv_wc Pair::poll(ibv_cq* cq) {
  ibv_wc completion{};
  int polled = 0;
  while (polled == 0) polled = ibv_poll_cq(cq, 1, &completion);
  need(polled == 1, "ibv_poll_cq");
  return completion;
}

}  // namespace misuse
