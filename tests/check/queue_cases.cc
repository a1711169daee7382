// Queue pairs that share completion queues, or shared receive queues of type XRC.
#include <fcntl.h>
#include <infiniband/verbs.h>

#include "check/cases.h"
#include "check/pair.h"

namespace misuse {
namespace {

constexpr unsigned signaled = IBV_SEND_SIGNALED;

// A queue pair in INIT that completes into the queue of the sender.
ibv_qp* add_queue_pair(const Pair& pair) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = pair.sender_cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  ibv_qp* made = ibv_create_qp(pair.pd, &wanted);
  need(made != nullptr, "ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  need(ibv_modify_qp(made, &attributes, mask) == 0, "ibv_modify_qp");
  return made;
}

void change_state(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  need(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0, "ibv_modify_qp");
}

// A Write is complete, and its completion is in the queue of the sender.
void write_and_wait(Pair& pair) {
  need(ibv_req_notify_cq(pair.sender_cq, 0) == 0, "ibv_req_notify_cq");
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  pair.await_event();
}

// Another queue pair of the completion queue is destroyed, and drops no completion of the sender.
void never_polled_beside_another(bool bad) {
  Pair pair({.channel = true});
  ibv_qp* other = add_queue_pair(pair);
  write_and_wait(pair);
  need(ibv_destroy_qp(other) == 0, "ibv_destroy_qp");
  if (!bad) Pair::poll(pair.sender_cq);
  pair.close();
}

void never_polled_at_a_reset(bool bad) {
  Pair pair({.channel = true});
  write_and_wait(pair);
  if (!bad) Pair::poll(pair.sender_cq);
  change_state(pair.sender, IBV_QPS_RESET);
  pair.close();
}

// The flushed completion of a queue pair goes with it, and may.
void not_drained_after_a_flush(bool bad) {
  Pair pair({.channel = true});
  ibv_qp* other = add_queue_pair(pair);
  ibv_recv_wr request{};
  ibv_recv_wr* failing = nullptr;
  need(ibv_post_recv(other, &request, &failing) == 0, "ibv_post_recv");
  change_state(other, IBV_QPS_ERR);
  if (!bad) need(ibv_destroy_qp(other) == 0, "ibv_destroy_qp");
  write_and_wait(pair);
  Pair::poll(pair.sender_cq);
  if (bad) {
    Pair::poll(pair.sender_cq);
    need(ibv_destroy_qp(other) == 0, "ibv_destroy_qp");
  }
  pair.close();
}

// Both ends of an extended connection. The receives are in a shared queue, and complete into the
// queue that it was made with.
struct Extended {
  explicit Extended(const Pair& pair) {
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = unsigned{IBV_XRCD_INIT_ATTR_FD} | unsigned{IBV_XRCD_INIT_ATTR_OFLAGS};
    domain.fd = -1;
    domain.oflags = O_CREAT;
    xrcd = ibv_open_xrcd(pair.context, &domain);
    need(xrcd != nullptr, "ibv_open_xrcd");
    ibv_srq_init_attr_ex wanted{};
    wanted.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    wanted.comp_mask = unsigned{IBV_SRQ_INIT_ATTR_TYPE} | unsigned{IBV_SRQ_INIT_ATTR_PD} |
                       unsigned{IBV_SRQ_INIT_ATTR_XRCD} | unsigned{IBV_SRQ_INIT_ATTR_CQ};
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.pd = pair.pd;
    wanted.xrcd = xrcd;
    wanted.cq = pair.receiver_cq;
    srq = ibv_create_srq_ex(pair.context, &wanted);
    need(srq != nullptr, "ibv_create_srq_ex");
    ibv_qp_init_attr_ex of_receiver{};
    of_receiver.qp_type = IBV_QPT_XRC_RECV;
    of_receiver.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    of_receiver.xrcd = xrcd;
    receiver = ibv_create_qp_ex(pair.context, &of_receiver);
    ibv_qp_init_attr_ex of_sender{};
    of_sender.qp_type = IBV_QPT_XRC_SEND;
    of_sender.comp_mask = IBV_QP_INIT_ATTR_PD;
    of_sender.pd = pair.pd;
    of_sender.send_cq = pair.sender_cq;
    of_sender.cap.max_send_wr = of_sender.cap.max_send_sge = 1;
    sender = ibv_create_qp_ex(pair.context, &of_sender);
    need(receiver && sender, "ibv_create_qp_ex");
    Pair::connect_both(sender, receiver, pair);
  }
  void receive(ibv_sge piece) const {
    ibv_recv_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* failing = nullptr;
    need(ibv_post_srq_recv(srq, &request, &failing) == 0, "ibv_post_srq_recv");
  }
  void send(ibv_sge piece) const {
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = signaled;
    need(ibv_get_srq_num(srq, &request.qp_type.xrc.remote_srqn) == 0, "ibv_get_srq_num");
    ibv_send_wr* failing = nullptr;
    need(ibv_post_send(sender, &request, &failing) == 0, "ibv_post_send");
  }
  void close() const {
    need(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(receiver) == 0, "ibv_destroy_qp");
    need(ibv_destroy_srq(srq) == 0 && ibv_close_xrcd(xrcd) == 0, "ibv_destroy_srq");
  }

  ibv_xrcd* xrcd = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* receiver = nullptr;
  ibv_qp* sender = nullptr;
};

void posted_region_of_an_extended_queue(bool bad) {
  Pair pair;
  ibv_mr* region = pair.add_region(4096, 4096, IBV_ACCESS_LOCAL_WRITE);
  const Extended extended(pair);
  ibv_sge piece = pair.piece(4096, 64);
  piece.lkey = region->lkey;
  extended.receive(piece);
  extended.send(pair.piece(0, 64));
  need(Pair::poll(pair.sender_cq).status == IBV_WC_SUCCESS, "ibv_post_send");
  if (!bad) Pair::poll(pair.receiver_cq);
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  if (bad) Pair::poll(pair.receiver_cq);
  extended.close();
  pair.close();
}

}  // namespace

Cases queue_cases() {
  return {
      {"never-polled.beside-another", never_polled_beside_another},
      {"never-polled.at-a-reset", never_polled_at_a_reset},
      {"not-drained.after-a-flush", not_drained_after_a_flush},
      {"posted-region.of-an-extended-queue", posted_region_of_an_extended_queue},
  };
}

}  // namespace misuse
