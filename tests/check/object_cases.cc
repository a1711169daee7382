// Objects after their end, and protection domains that are one.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "check/cases.h"
#include "check/pair.h"

namespace misuse {
namespace {

constexpr unsigned signaled = IBV_SEND_SIGNALED;

// A call that must fail for a destroyed object, and succeed for one that lives.
void need_failure(bool failed, bool wanted, const char* what) {
  need(failed == wanted, what);
}

void destroyed_object_in_queries(bool bad) {
  Pair pair({.shared = true});
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = wanted.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(pair.pd, &wanted);
  ibv_cq* cq = ibv_create_cq(pair.context, 4, nullptr, nullptr, 0);
  need(srq && cq, "ibv_create_srq");
  const auto destroy = [&] {
    need(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0, "ibv_destroy_srq");
  };
  if (bad) destroy();
  ibv_srq_attr limits{};
  need_failure(ibv_query_srq(srq, &limits) == EINVAL, bad, "ibv_query_srq");
  need_failure(ibv_resize_cq(cq, 8) == EINVAL, bad, "ibv_resize_cq");
  if (!bad) destroy();
  pair.close();
}

void destroyed_object_for_a_new_one(bool bad) {
  Pair pair;
  ibv_pd* pd = ibv_alloc_pd(pair.context);
  ibv_cq* cq = ibv_create_cq(pair.context, 4, nullptr, nullptr, 0);
  need(pd && cq, "ibv_create_cq");
  const auto destroy = [&] {
    need(ibv_dealloc_pd(pd) == 0 && ibv_destroy_cq(cq) == 0, "ibv_dealloc_pd");
  };
  if (bad) destroy();
  ibv_mw* window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  need_failure(!window, bad, "ibv_alloc_mw");
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = pd;
  ibv_qp* qp = ibv_create_qp_ex(pair.context, &wanted);
  need_failure(!qp, bad, "ibv_create_qp_ex");
  if (!bad) {
    need(ibv_destroy_qp(qp) == 0 && ibv_dealloc_mw(window) == 0, "ibv_destroy_qp");
    destroy();
  }
  pair.close();
}

void destroyed_object_in_a_batch(bool bad) {
  Pair pair;
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = pair.sender_cq;
  wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;
  wanted.comp_mask = unsigned{IBV_QP_INIT_ATTR_PD} | unsigned{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
  wanted.pd = pair.pd;
  wanted.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* qp = ibv_create_qp_ex(pair.context, &wanted);
  need(qp != nullptr, "ibv_create_qp_ex");
  ibv_qp_ex* batch = ibv_qp_to_qp_ex(qp);
  if (bad) need(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  ibv_wr_start(batch);
  if (bad) {
    ibv_wr_send(batch);
    ibv_wr_set_sge(batch, pair.mr->lkey, pair.piece(0, 64).addr, 64);
    need(ibv_wr_complete(batch) == EINVAL, "ibv_wr_complete");
  } else {
    ibv_wr_abort(batch);
    need(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  }
  pair.close();
}

void destroyed_object_that_waits(bool bad) {
  Pair pair({.channel = true});
  ibv_comp_channel* other = ibv_create_comp_channel(pair.context);
  need(other != nullptr, "ibv_create_comp_channel");
  need(ibv_destroy_comp_channel(other) == 0, "ibv_destroy_comp_channel");
  need(ibv_req_notify_cq(pair.sender_cq, 0) == 0, "ibv_req_notify_cq");
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(0, 64), signaled) == 0, "ibv_post_send");
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (bad) need(ibv_get_cq_event(other, &cq, &context) == -1, "ibv_get_cq_event");
  pair.await_event();
  Pair::poll(pair.sender_cq);
  pair.close();
}

void destroyed_object_of_rdma_cm(bool bad) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  need(channel && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  const auto destroy = [&] {
    need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
    rdma_destroy_event_channel(channel);
  };
  if (bad) destroy();
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  need_failure(rdma_bind_addr(id, address) == -1, bad, "rdma_bind_addr");
  need_failure(rdma_listen(id, 1) == -1, bad, "rdma_listen");
  need(rdma_disconnect(id) == -1, "rdma_disconnect");
  rdma_cm_id* other = nullptr;
  need_failure(rdma_create_id(channel, &other, nullptr, RDMA_PS_TCP) == -1, bad, "rdma_create_id");
  if (!bad) {
    need(rdma_destroy_id(other) == 0, "rdma_destroy_id");
    destroy();
  }
}

void destroyed_object_of_an_endpoint(bool bad) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* address = nullptr;
  need(rdma_getaddrinfo("127.0.0.1", "0", &hints, &address) == 0, "rdma_getaddrinfo");
  rdma_cm_id* id = nullptr;
  need(rdma_create_ep(&id, address, nullptr, nullptr) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(address);
  rdma_destroy_ep(id);
  if (bad) rdma_destroy_ep(id);
}

// The device gives the addresses of domains that were destroyed long ago to new ones.
void destroyed_object_long_ago(bool bad) {
  constexpr int others = 4500;
  Pair pair;
  std::array<ibv_pd*, 100> domains{};
  for (ibv_pd*& each : domains) each = ibv_alloc_pd(pair.context);
  for (ibv_pd* each : domains) need(ibv_dealloc_pd(each) == 0, "ibv_dealloc_pd");
  if (bad) need(!ibv_reg_mr(domains[0], pair.memory.data(), 64, 0), "ibv_reg_mr");
  for (int i = 0; i < others; ++i) {
    need(ibv_dereg_mr(pair.add_region(0, 64, 0)) == 0, "ibv_dereg_mr");
  }
  ibv_parent_domain_init_attr wanted{};
  wanted.pd = pair.pd;
  for (ibv_pd*& each : domains) {
    each = ibv_alloc_parent_domain(pair.context, &wanted);
    ibv_mr* region = ibv_reg_mr(each, pair.memory.data(), 64, 0);
    need(region && ibv_dereg_mr(region) == 0, "ibv_reg_mr");
  }
  for (ibv_pd* each : domains) need(ibv_dealloc_pd(each) == 0, "ibv_dealloc_pd");
  pair.close();
}

void wrong_domain_of_a_parent(bool bad) {
  Pair pair;
  ibv_pd* other = ibv_alloc_pd(pair.context);
  ibv_td_init_attr thread{};
  ibv_parent_domain_init_attr wanted{};
  wanted.pd = bad ? other : pair.pd;
  wanted.td = ibv_alloc_td(pair.context, &thread);
  ibv_pd* parent = ibv_alloc_parent_domain(pair.context, &wanted);
  need(other && wanted.td && parent, "ibv_alloc_parent_domain");
  ibv_mr* region = ibv_reg_mr(parent, pair.memory.data(), 4096, 0);
  need(region != nullptr, "ibv_reg_mr");
  ibv_sge piece = pair.piece(0, 64);
  piece.lkey = region->lkey;
  need(pair.send(IBV_WR_RDMA_WRITE, piece, signaled) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  need(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(parent) == 0, "ibv_dealloc_pd");
  need(ibv_dealloc_td(wanted.td) == 0 && ibv_dealloc_pd(other) == 0, "ibv_dealloc_td");
  pair.close();
}

// A bind is a request of the send queue, whose completion retires no other one.
void posted_region_behind_a_bind(bool bad) {
  Pair pair;
  const unsigned rights = unsigned{IBV_ACCESS_LOCAL_WRITE} | unsigned{IBV_ACCESS_MW_BIND};
  ibv_mr* bound = pair.add_region(0, 4096, rights);
  ibv_mr* region = pair.add_region(4096, 4096, IBV_ACCESS_LOCAL_WRITE);
  ibv_mw* window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
  need(window != nullptr, "ibv_alloc_mw");
  ibv_mw_bind bind{};
  bind.wr_id = 1;
  bind.send_flags = signaled;
  bind.bind_info = {.mr = bound,
                    .addr = pair.piece(0, 64).addr,
                    .length = 64,
                    .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  need(ibv_bind_mw(pair.sender, window, &bind) == 0, "ibv_bind_mw");
  ibv_sge piece = pair.piece(4096, 64);
  piece.lkey = region->lkey;
  need(pair.send(IBV_WR_RDMA_WRITE, piece, signaled) == 0, "ibv_post_send");
  need(Pair::poll(pair.sender_cq).wr_id == 1, "ibv_poll_cq");
  if (!bad) Pair::poll(pair.sender_cq);
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
  if (bad) Pair::poll(pair.sender_cq);
  need(ibv_dealloc_mw(window) == 0 && ibv_dereg_mr(bound) == 0, "ibv_dealloc_mw");
  pair.close();
}

// An event that the queue pair raises once its send queue is empty. It is not acknowledged yet.
ibv_async_event drained(Pair& pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  need(ibv_modify_qp(pair.sender, &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0,
       "ibv_modify_qp");
  ibv_async_event event{};
  need(ibv_get_async_event(pair.context, &event) == 0, "ibv_get_async_event");
  // Both queue pairs may have raised one.
  while (event.event_type != IBV_EVENT_SQ_DRAINED) {
    ibv_ack_async_event(&event);
    need(ibv_get_async_event(pair.context, &event) == 0, "ibv_get_async_event");
  }
  return event;
}

void unacknowledged_event_of_queue_pair(bool bad) {
  Pair pair;
  ibv_async_event event = drained(pair);
  if (!bad) ibv_ack_async_event(&event);
  pair.close();
}

// Whether a thread of this process is within futex(2), where destruction waits.
bool waits_on_a_futex(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  std::string number;
  file >> number;
  return number == std::to_string(SYS_futex);
}

// Another thread acknowledges while the destruction waits for it, and ends the wait.
void unacknowledged_event_late(bool bad) {
  Pair pair;
  ibv_async_event event = drained(pair);
  const pid_t destroyer = gettid();
  if (!bad) ibv_ack_async_event(&event);
  std::thread late([&] {
    if (!bad) return;
    // A lock is waited for as well, and not for long.
    constexpr int long_enough = 100;
    for (int seen = 0; seen < long_enough;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      seen = waits_on_a_futex(destroyer) ? seen + 1 : 0;
    }
    ibv_ack_async_event(&event);
  });
  pair.close();
  late.join();
}

}  // namespace

Cases object_cases() {
  return {
      {"destroyed-object.in-queries", destroyed_object_in_queries},
      {"destroyed-object.for-a-new-one", destroyed_object_for_a_new_one},
      {"destroyed-object.in-a-batch", destroyed_object_in_a_batch},
      {"destroyed-object.that-waits", destroyed_object_that_waits},
      {"destroyed-object.of-rdma-cm", destroyed_object_of_rdma_cm},
      {"destroyed-object.of-an-endpoint", destroyed_object_of_an_endpoint},
      {"destroyed-object.long-ago", destroyed_object_long_ago},
      {"wrong-domain.of-a-parent", wrong_domain_of_a_parent},
      {"posted-region.behind-a-bind", posted_region_behind_a_bind},
      {"unacknowledged-event.late", unacknowledged_event_late},
      {"unacknowledged-event.of-queue-pair", unacknowledged_event_of_queue_pair},
  };
}

}  // namespace misuse
