// The counters of queue pairs, completion queues, memory regions and devices.
#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/datagram/datagrams.h"
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

DeviceCounters::Refusals values_of(const device::Refusals& refusals) {
  return {.timed_out = refusals.timed_out,
          .malformed = refusals.malformed,
          .closed = refusals.closed,
          .evicted = refusals.evicted,
          .out_of_descriptors = refusals.out_of_descriptors,
          .reset = refusals.reset,
          .not_ready = refusals.not_ready,
          .refused = refusals.refused,
          .strangers = refusals.strangers,
          .wrong_psn = refusals.wrong_psn,
          .other_user = refusals.other_user,
          .answered_early = refusals.answered_early,
          .queries_malformed = refusals.queries_malformed,
          .queries_ignored = refusals.queries_ignored,
          .no_first_fpdu = refusals.no_first_fpdu,
          .silent = refusals.silent,
          .terminated_access = refusals.terminated_access,
          .terminated_no_buffer = refusals.terminated_no_buffer,
          .terminated_other = refusals.terminated_other,
          .local_other_user = refusals.local_other_user,
          .local_dropped = refusals.local_dropped,
          .local_refused = refusals.local_refused,
          .local_violations = refusals.local_violations,
          .top_refused = refusals.top_refused};
}

DeviceCounters::Datagrams values_of(const device::DatagramCounters& datagrams) {
  return {.malformed = datagrams.malformed,
          .no_queue_pair = datagrams.no_queue_pair,
          .wrong_queue_key = datagrams.wrong_queue_key,
          .no_receive = datagrams.no_receive,
          .wrong_icrc = datagrams.wrong_icrc};
}

DeviceCounters::Link values_of(device::DeviceLink* link) {
  if (!link) return {};
  const device::LinkCounters& counters = link->counters();
  return {.delayed_bytes = counters.delayed_bytes,
          .stalls = counters.stalls,
          .lost_datagrams = counters.lost_datagrams};
}

int read_device_counters(ibv_context* context, DeviceCounters* counters) {
  if (!Process::owns(context)) return ENODEV;
  device::Device& device = device::Context::of(context)->device();
  const auto totals = device.statistics_registry().totals();
  *counters = {.queue_pairs = totals.queue_pairs,
               .queue_pairs_created = totals.queue_pairs_created,
               .queue_pairs_destroyed = totals.queue_pairs_destroyed,
               .completion_queues = totals.completion_queues,
               .completion_queues_created = totals.completion_queues_created,
               .completion_queues_destroyed = totals.completion_queues_destroyed,
               .refusals = values_of(device.refusals()),
               .datagrams = values_of(device.datagrams().counters()),
               .link = values_of(device.link())};
  if (const device::DeviceFaults* faults = device.faults()) {
    for (const auto& rule : faults->plan().counts()) counters->faults += rule.faults;
  }
  for (const auto& name : faults::capability_names()) {
    counters->beyond_limits += device.adapter().refused(name.capability);
  }
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
  table.read_device_counters = verbs_call<read_device_counters>;
  table.read_refused_access = verbs_call<read_refused_access>;
}

}  // namespace weft::provider
