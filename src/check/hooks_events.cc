// Events of completion queues, and asynchronous ones.
#include "check/completion_checks.h"
#include "check/hooks.h"

namespace weft::check {
namespace {

bool may_use(const char* function, const void* object) {
  Call call(function);
  return call.may_use(object);
}

// The frame needs no destructor, because a thread may be cancelled in it.
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (!may_use("ibv_get_cq_event", channel)) return errno = EINVAL, -1;
  check_wait(channel);
  InsideDevice::enter();
  const int failed = checker().below.table->get_cq_event(channel, cq, cq_context);
  InsideDevice::leave();
  if (failed == 0) note_event(*cq);
  return failed;
}

void ack_cq_events(ibv_cq* cq, unsigned events) {
  if (!may_use("ibv_ack_cq_events", cq)) return;
  note_acknowledged(cq, events);
  checker().below.table->ack_cq_events(cq, events);
}

// The object that waits for the acknowledgement; null for events of the port and the device.
const void* owner_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    default:
      return nullptr;
  }
}

void note_async_event(const ibv_async_event& event) {
  const void* const owner = owner_of(event);
  const std::lock_guard lock(checker().mutex);
  if (owner) checker().events.fetched(owner);
}

// As get_cq_event().
int get_async_event(ibv_context* context, ibv_async_event* event) {
  if (!may_use("ibv_get_async_event", context)) return errno = EINVAL, -1;
  InsideDevice::enter();
  const int failed = checker().below.table->get_async_event(context, event);
  InsideDevice::leave();
  if (failed == 0) note_async_event(*event);
  return failed;
}

// The layers of C++ call it.
int wait_for(pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  InsideDevice::enter();
  const int ready = checker().below.table->wait(entries, count, timeout, mask);
  InsideDevice::leave();
  return ready;
}

void ack_async_event(ibv_async_event* event) {
  if (const void* const owner = owner_of(*event)) {
    if (!may_use("ibv_ack_async_event", owner)) return;
    const std::lock_guard lock(checker().mutex);
    checker().events.acknowledged(owner);
  }
  checker().below.table->ack_async_event(event);
}

int fork_init() {
  checker().fork_ready = true;
  return checker().below.table->fork_init();
}

// The answer, that nothing is needed, is as good as the initialization.
ibv_fork_status is_fork_initialized() {
  checker().fork_ready = true;
  return checker().below.table->is_fork_initialized();
}

}  // namespace

int arm(ibv_cq* cq, int solicited_only) {
  Call call("ibv_req_notify_cq");
  if (!call.may_use(cq)) return EINVAL;
  note_armed(call, cq);
  return checker().below.operations.req_notify_cq(cq, solicited_only);
}

void hook_events(provider::Table& table) {
  table.get_cq_event = get_cq_event;
  table.ack_cq_events = ack_cq_events;
  table.get_async_event = get_async_event;
  table.ack_async_event = ack_async_event;
  table.wait = wait_for;
  table.fork_init = fork_init;
  table.is_fork_initialized = is_fork_initialized;
}

}  // namespace weft::check
