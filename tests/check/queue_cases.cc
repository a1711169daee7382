// Queue pairs that share completion queues.
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

}  // namespace

Cases queue_cases() {
  return {
      {"never-polled.beside-another", never_polled_beside_another},
      {"never-polled.at-a-reset", never_polled_at_a_reset},
      {"not-drained.after-a-flush", not_drained_after_a_flush},
  };
}

}  // namespace misuse
