// Objects after their end, and protection domains that are one.
#include <infiniband/verbs.h>

#include <array>

#include "check/cases.h"
#include "check/pair.h"

namespace misuse {
namespace {

constexpr unsigned signaled = IBV_SEND_SIGNALED;

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

}  // namespace

Cases object_cases() {
  return {
      {"destroyed-object.long-ago", destroyed_object_long_ago},
      {"wrong-domain.of-a-parent", wrong_domain_of_a_parent},
      {"posted-region.behind-a-bind", posted_region_behind_a_bind},
  };
}

}  // namespace misuse
