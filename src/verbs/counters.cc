// Reads the counters of devices, queue pairs, completion queues and memory regions.
#include "weft/counters.hpp"

#include "verbs/failure.h"
#include "verbs/state.h"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/queue_pair.hpp"

namespace weft::verbs {

DeviceCounters Context::counters() const {
  DeviceCounters counted;
  const int failed = state_->table.read_device_counters(raw(), &counted);
  if (failed) detail::fail(failed, "cannot read the counters of " + state_->device_name());
  return counted;
}

QueuePairCounters QueuePair::counters() const {
  QueuePairCounters counted;
  // A queue pair of rdma_cm was made through the table of its id.
  const auto& table = state_->id ? state_->id->channel->table : state_->domain->context->table;
  detail::check(table.read_qp_counters(raw(), &counted), "cannot read a queue pair's counters");
  return counted;
}

CompletionQueueCounters CompletionQueue::counters() const {
  CompletionQueueCounters counted;
  const int failed = state_->context->table.read_cq_counters(raw(), &counted);
  detail::check(failed, "cannot read a completion queue's counters");
  return counted;
}

MemoryRegionCounters MemoryRegion::counters() const {
  MemoryRegionCounters counted;
  const int failed = state_->domain->context->table.read_mr_counters(raw_, &counted);
  detail::check(failed, "cannot read a memory region's counters");
  return counted;
}

}  // namespace weft::verbs
