// Events of completion queues.
#include "check/completion_checks.h"
#include "check/hooks.h"

namespace weft::check {
namespace {

// The frame needs no destructor, because a thread may be cancelled in it.
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  check_wait(channel);
  const int failed = checker().below.table->get_cq_event(channel, cq, cq_context);
  if (failed == 0) note_event(*cq);
  return failed;
}

void ack_cq_events(ibv_cq* cq, unsigned events) {
  note_acknowledged(cq, events);
  checker().below.table->ack_cq_events(cq, events);
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
  table.fork_init = fork_init;
  table.is_fork_initialized = is_fork_initialized;
}

}  // namespace weft::check
