// Creates, changes and queries queue pairs.
#include "device/context.h"
#include "device/queue_pair/queue_pair.h"
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
  const auto made = QueuePair::create(*Context::of(verbs), pd, *attributes);
  return made ? made->verbs() : nullptr;  // the context holds it until destroy()
}

// Null if it was not created with send_ops_flags, for ibv_wr_post(3).
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) {
  QueuePair* queue_pair = QueuePair::of(qp);
  return queue_pair->takes_batches() ? queue_pair->extended() : nullptr;
}

// In a child of fork(2) the locks of the queue pair may be held by threads that do not exist there.
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  if (!Process::owns(qp->context)) return ENODEV;
  if (device::DeviceFaults* faults = Context::of(qp->context)->device().faults()) {
    if (const int failed = faults->call(faults::Point::modify_queue_pair, *qp)) return failed;
  }
  QueuePair& queue_pair = *QueuePair::of(qp);
  const int failed = queue_pair.modify(*attributes, mask);
  // One of several handles (ibv_open_qp(3)): the queue pair knows its first one only, whose state
  // the progress thread may change at any time.
  if (failed == 0 && qp != queue_pair.verbs()) {
    ibv_qp_attr now{};
    ibv_qp_init_attr initial{};
    queue_pair.query(now, initial);
    qp->state = now.qp_state;
  }
  return failed;
}

// ibv_query_qp(3): the mask is a hint for the least that is returned, so it is ignored.
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* initial) {
  if (!Process::owns(qp->context)) return ENODEV;
  QueuePair::of(qp)->query(*attributes, *initial);
  return 0;
}

// TCP delivers in order, but a promise would also bind every later data path: make none.
int query_qp_data_in_order(ibv_qp* /*qp*/, ibv_wr_opcode /*opcode*/, std::uint32_t /*flags*/) {
  return 0;
}

// In a child of fork(2) this must not end the connection, which is the parent's.
int destroy_qp(ibv_qp* qp) {
  if (!Process::owns(qp->context)) return 0;
  QueuePair::of(qp)->close_handle(qp);
  return 0;
}

// Enhanced connection establishment: vendors negotiate options by it, and this device has none.
int set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  return EOPNOTSUPP;
}
int query_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  return EOPNOTSUPP;
}

// Takes over both descriptors in every case, and closes them if the call fails.
int share_memory(ibv_qp* qp, int file, int bell) {
  if (Process::owns(qp->context)) return QueuePair::of(qp)->share_memory(file, bell);
  device::sys::close(file);
  if (bell >= 0) device::sys::close(bell);
  return ENODEV;
}
// The queue pair returns a descriptor, or a negative errno value.
int take_shared_memory(ibv_qp* qp, int* bell) {
  *bell = -1;
  const int file =
      Process::owns(qp->context) ? QueuePair::of(qp)->take_shared_memory(*bell) : -ENODEV;
  if (file >= 0) return file;
  errno = -file;
  return -1;
}

}  // namespace

void parts::queue_pairs(Table& table) {
  table.create_qp = verbs_call<create_qp>;
  table.qp_to_qp_ex = verbs_call<qp_to_qp_ex>;
  table.modify_qp = verbs_call<modify_qp>;
  table.query_qp = verbs_call<query_qp>;
  table.query_qp_data_in_order = verbs_call<query_qp_data_in_order>;
  table.destroy_qp = verbs_call<destroy_qp>;
  table.share_memory = verbs_call<share_memory>;
  table.take_shared_memory = cm_call<take_shared_memory>;
  table.set_ece = verbs_call<set_ece>;
  table.query_ece = verbs_call<query_ece>;
}

}  // namespace weft::provider
