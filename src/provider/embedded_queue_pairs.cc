// Queue pairs.
#include "device/context.h"
#include "device/limits.h"
#include "device/queue_pair.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::Context;
using device::QueuePair;

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  ibv_context* verbs = pd->context;
  if (!Process::owns(verbs)) return fail_null(ENODEV);
  const bool foreign = (attributes->send_cq && attributes->send_cq->context != verbs) ||
                       (attributes->recv_cq && attributes->recv_cq->context != verbs) ||
                       (attributes->srq && attributes->srq->context != verbs);
  if (foreign) return fail_null(EINVAL);
  Context* context = Context::of(verbs);
  if (context->queue_pair_count() >= device::limits::max_queue_pairs) return fail_null(ENOMEM);
  const auto made = QueuePair::create(*context, pd, *attributes);
  return made ? made->verbs() : nullptr;  // the context holds it until destroy()
}

// Queue pairs with the calls of ibv_wr_post(3) are not built yet.
ibv_qp_ex* qp_to_qp_ex(ibv_qp* /*qp*/) {
  return nullptr;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  return QueuePair::of(qp)->modify(*attributes, mask);
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* initial) {
  QueuePair::of(qp)->query(*attributes, *initial);
  return 0;
}

// TCP delivers in order, but the answer binds every later path of the data as well: no promise.
int query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*opcode*/, std::uint32_t /*flags*/) {
  return 0;
}

int destroy_qp(ibv_qp* qp) {
  if (!Process::owns(qp->context)) return 0;
  QueuePair::of(qp)->destroy();
  return 0;
}

// Options that vendors negotiate; this one has none.
int set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  return EOPNOTSUPP;
}
int query_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  return EOPNOTSUPP;
}

}  // namespace

void parts::queue_pairs(Table& table) {
  table.create_qp = verbs_call<create_qp>;
  table.qp_to_qp_ex = verbs_call<qp_to_qp_ex>;
  table.modify_qp = verbs_call<modify_qp>;
  table.query_qp = verbs_call<query_qp>;
  table.query_qp_data_in_order = verbs_call<query_qp_data_in_order>;
  table.destroy_qp = verbs_call<destroy_qp>;
  table.set_ece = verbs_call<set_ece>;
  table.query_ece = verbs_call<query_ece>;
}

}  // namespace weft::provider
