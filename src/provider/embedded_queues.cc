// Completion channels, completion queues and shared receive queues.
#include <algorithm>
#include <memory>

#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::CompletionChannel;
using device::CompletionQueue;
using device::Context;
using device::ProtectionDomain;
using device::SharedReceiveQueue;

ibv_comp_channel* create_comp_channel(ibv_context* verbs) {
  if (!Process::owns(verbs)) return fail_null(ENODEV);
  if (const int failed = Context::of(verbs)->device().fault_of(faults::Point::create_channel)) {
    return fail_null(failed);
  }
  auto made = CompletionChannel::make(verbs);
  if (made->verbs()->fd < 0) return fail_null(EMFILE);
  ++Context::of(verbs)->objects;
  return made.release()->verbs();
}

// EBUSY while completion queues use the channel.
int destroy_comp_channel(ibv_comp_channel* channel) {
  if (!Process::owns(channel->context)) return 0;
  // The count is a plain int of the public structure, and queues of several threads change it.
  if (std::atomic_ref(channel->refcnt) > 0) return EBUSY;
  --Context::of(channel->context)->objects;
  CompletionChannel::of(channel)->release();
  return 0;
}

ibv_cq* create_cq(ibv_context* verbs, int entries, void* cq_context, ibv_comp_channel* channel,
                  int vector) {
  if (!Process::owns(verbs)) return fail_null(ENODEV);
  if (const int failed =
          Context::of(verbs)->device().fault_of(faults::Point::create_completion_queue)) {
    return fail_null(failed);
  }
  // A channel belongs to one context, and only queues of that context may use it.
  Context* context = Context::of(verbs);
  const bool wrong =
      vector < 0 || vector >= verbs->num_comp_vectors || (channel && channel->context != verbs);
  if (wrong || !CompletionQueue::holds(context->device(), static_cast<std::uint64_t>(entries)))
    return fail_null(EINVAL);
  auto made = std::make_unique<CompletionQueue>(*context, entries, cq_context,
                                                channel ? CompletionChannel::of(channel) : nullptr);
  ++context->objects;
  return made.release()->verbs();
}

int resize_cq(ibv_cq* cq, int entries) {
  return CompletionQueue::of(cq)->resize(entries);
}

// Checks of programs have put their own function before the device's, and see each poll.
int poll_cq_into(ibv_cq* cq, int entries, ibv_wc* completions, ReceivePlace* place) {
  if (!device::polls_plainly(*cq->context)) return ibv_poll_cq(cq, entries, completions);
  return CompletionQueue::of(cq)->poll(entries, completions, place);
}

// ibv_get_cq_event(3) and ibv_get_async_event(3): blocks until all events of the queue are
// acknowledged.
int destroy_cq(ibv_cq* cq) {
  if (!Process::owns(cq->context)) return 0;
  CompletionQueue* queue = CompletionQueue::of(cq);
  // Queue pairs still complete their requests into it (ibv_destroy_cq(3)).
  if (queue->in_use()) return EBUSY;
  Context* context = Context::of(cq->context);
  // Before the queue is deleted: an event that was taken still points to it.
  context->settle_events(cq);
  delete queue;
  --context->objects;
  return 0;
}

// Returns the limits that were granted: at least one scatter/gather entry.
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  if (!Process::owns(pd->context)) return fail_null(ENODEV);
  if (const int failed =
          Context::of(pd->context)->device().fault_of(faults::Point::create_shared_receive_queue)) {
    return fail_null(failed);
  }
  Context* context = Context::of(pd->context);
  if (const int failed = SharedReceiveQueue::check(context->device(), attributes->attr)) {
    return fail_null(failed);
  }
  attributes->attr.max_sge = std::max(attributes->attr.max_sge, 1U);
  auto made = std::make_unique<SharedReceiveQueue>(*context, pd, *attributes);
  // The domain cannot be deallocated while the queue uses it: ibv_dealloc_pd(3).
  ++ProtectionDomain::of(pd)->users;
  ++context->objects;
  return made.release()->verbs();
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  return SharedReceiveQueue::of(srq)->modify(*attributes, mask);
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  SharedReceiveQueue::of(srq)->query(*attributes);
  return 0;
}

int destroy_srq(ibv_srq* srq) {
  if (!Process::owns(srq->context)) return 0;
  SharedReceiveQueue* queue = SharedReceiveQueue::of(srq);
  // Queue pairs still take their receives from it (ibv_destroy_srq(3)).
  if (queue->in_use()) return EBUSY;
  Context* context = Context::of(srq->context);
  // As in destroy_cq(): an event that was taken still points to the queue.
  context->settle_events(srq);
  --ProtectionDomain::of(srq->pd)->users;
  delete queue;
  --context->objects;
  return 0;
}

}  // namespace

void parts::queues(Table& table) {
  table.create_comp_channel = verbs_call<create_comp_channel>;
  table.destroy_comp_channel = verbs_call<destroy_comp_channel>;
  table.create_cq = verbs_call<create_cq>;
  table.resize_cq = verbs_call<resize_cq>;
  table.destroy_cq = verbs_call<destroy_cq>;
  table.poll_cq_into = poll_cq_into;
  table.create_srq = verbs_call<create_srq>;
  table.modify_srq = verbs_call<modify_srq>;
  table.query_srq = verbs_call<query_srq>;
  table.destroy_srq = verbs_call<destroy_srq>;
}

}  // namespace weft::provider
