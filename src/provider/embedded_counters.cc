// The counters of queue pairs, completion queues and memory regions.
#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/local/grant_table.h"
#include "device/queue_pair/queue_pair.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

// In a child of fork(2) the counters of inherited objects are the parent's, so they cannot be read
// there.
int read_qp_counters(ibv_qp* qp, QueuePairCounters* counters) {
  if (!Process::owns(qp->context)) return ENODEV;
  *counters = device::QueuePair::of(qp)->counters();
  return 0;
}

int read_cq_counters(ibv_cq* cq, CompletionQueueCounters* counters) {
  if (!Process::owns(cq->context)) return ENODEV;
  *counters = device::CompletionQueue::of(cq)->counters();
  return 0;
}

int read_mr_counters(ibv_mr* mr, MemoryRegionCounters* counters) {
  if (!Process::owns(mr->context)) return ENODEV;
  *counters = device::Context::of(mr->context)->grants().counters(*device::Region::of(mr));
  return 0;
}

unsigned verbs_right(iwarp::RemoteRight right) {
  switch (right) {
    case iwarp::RemoteRight::read:
      return IBV_ACCESS_REMOTE_READ;
    case iwarp::RemoteRight::atomic:
      return IBV_ACCESS_REMOTE_ATOMIC;
    default:
      return IBV_ACCESS_REMOTE_WRITE;
  }
}

int read_refused_access(ibv_qp* qp, RefusedAccess* refused) {
  if (!Process::owns(qp->context)) return ENODEV;
  const device::RefusedAccess last = device::QueuePair::of(qp)->refused_access();
  *refused = {last.stag, last.offset, last.length_bytes, verbs_right(last.right)};
  return 0;
}

}  // namespace

void parts::counters(Table& table) {
  table.read_qp_counters = verbs_call<read_qp_counters>;
  table.read_cq_counters = verbs_call<read_cq_counters>;
  table.read_mr_counters = verbs_call<read_mr_counters>;
  table.read_refused_access = verbs_call<read_refused_access>;
}

}  // namespace weft::provider
