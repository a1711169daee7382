// Private to this layer: each file sets the functions of its part.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "check/checker.h"
#include "provider/table.h"

namespace weft::check {

// The device's own functions.
[[nodiscard]] inline const provider::Table& table_below() {
  return *checker().below.table;
}

void hook_devices(provider::Table& table);
void hook_memory(provider::Table& table);
void hook_imports(provider::Table& table);
void hook_queues(provider::Table& table);
void hook_connections(provider::Table& table);
void hook_events(provider::Table& table);
void hook_uses(provider::Table& table);
// ibv_req_notify_cq(3)
int arm(ibv_cq* cq, int solicited_only);

// Puts the checks into the operations of a context; again does nothing.
void hook_context(ibv_context* context);
void hook_domains_of(verbs_context& context);
void hook_memory_of(verbs_context& context);
void hook_queues_of(verbs_context& context);
void hook_uses_of(verbs_context& context);
// Notes a region whose address in the program is not known, so that no access to it is checked.
void note_unplaced_region(Call& call, const ibv_mr& mr, const ibv_pd* domain);
void forget_region(Call& call, std::uint32_t key);
// Whether the objects that are named for a new queue may be used; see Call::may_use().
[[nodiscard]] bool may_use(Call& call, ibv_pd* pd, const ibv_qp_init_attr& attributes);
[[nodiscard]] bool may_use(Call& call, ibv_context* context, const ibv_qp_init_attr_ex& attributes);
[[nodiscard]] bool may_use(Call& call, const ibv_srq_init_attr_ex& attributes);
// Notes a new queue pair.
void note_queue_pair(Call& call, ibv_qp* qp);
// Before a queue pair is destroyed: what it leaves undone.
void check_queue_pair_end(Call& call, ibv_qp* qp);
// Before a queue pair is destroyed. A new one may have its address soon afterwards.
void forget_requests_of(const ibv_qp* qp);
// Polling of ibv_start_poll(3). The queue has IBV_WC_EX_WITH_QP_NUM and IBV_WC_EX_WITH_BYTE_LEN;
// its program sees them only if they are in `wanted`.
void hook_polling(ibv_cq_ex& cq, std::uint64_t wanted);
// The calls of ibv_wr_post(3).
void hook_batches(ibv_qp_ex& qp);

}  // namespace weft::check
