// rdma_cm: the objects that it makes, and the contexts that it shows to the program.
#include <utility>

#include "check/completion_checks.h"
#include "check/hooks.h"

namespace weft::check {
namespace {

// The objects of an id, before and after a call that makes or destroys some.
struct QueuesOf {
  explicit QueuesOf(const rdma_cm_id* id)
      : qp(id->qp), send_cq(id->send_cq), recv_cq(id->recv_cq), srq(id->srq) {}
  ibv_qp* qp;
  ibv_cq* send_cq;
  ibv_cq* recv_cq;
  ibv_srq* srq;
};

bool is_new(const void* handle) {
  const std::lock_guard lock(checker().mutex);
  return handle && !checker().objects.find(handle);
}

void note_implied(Call& call, Kind kind, const void* handle) {
  if (is_new(handle)) call.made({.kind = kind, .handle = handle, .implied = true});
}

void note_implied_queue(Call& call, const ibv_cq* cq) {
  if (!is_new(cq)) return;
  call.made({.kind = Kind::completion_queue, .handle = cq, .implied = true});
  const std::lock_guard lock(checker().mutex);
  checker().completions.add(cq);
}

// What the program did not pass to rdma_create_qp(3) was made with the queue pair.
// `completions`: those of a new shared queue, if it has its own.
void note_queues(Call& call, const rdma_cm_id* id, const QueuesOf& before,
                 const ibv_cq* completions = nullptr) {
  hook_context(id->verbs);
  note_implied(call, Kind::domain, id->pd);
  note_implied_queue(call, id->send_cq);
  note_implied_queue(call, id->recv_cq);
  if (id->srq && id->srq != before.srq && is_new(id->srq)) {
    call.made({.kind = Kind::shared_receive_queue, .handle = id->srq, .uses = {id->pd}});
    const std::lock_guard lock(checker().mutex);
    checker().requests.add(*id->srq, completions);
  }
  if (id->qp && id->qp != before.qp) {
    note_queue_pair(call, id->qp);
    if (ibv_qp_ex* extended = table_below().qp_to_qp_ex(id->qp)) hook_batches(*extended);
  }
}

// rdma_destroy_srq(3) leaves a queue that other ids use.
bool is_used(const ibv_srq* srq) {
  const std::lock_guard lock(checker().mutex);
  return !checker().objects.users_of(srq).empty();
}

void forget_queues(Call& call, const QueuesOf& before, const QueuesOf& after) {
  if (before.qp && !after.qp) call.destroyed(before.qp);
  for (const auto& [cq, left] :
       {std::pair(before.send_cq, after.send_cq), std::pair(before.recv_cq, after.recv_cq)}) {
    if (!cq || left) continue;
    call.destroyed(cq);
    const std::lock_guard lock(checker().mutex);
    checker().completions.remove(cq);
  }
  if (before.srq && !after.srq && !is_used(before.srq)) {
    call.destroyed(before.srq);
    checker().early_accesses.ended_all(before.srq);
    const std::lock_guard lock(checker().mutex);
    checker().requests.remove(*before.srq);
  }
}

int id_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  Call call("rdma_create_qp");
  if (!call.may_use(id) || !may_use(call, pd, *attributes)) return errno = EINVAL, -1;
  const QueuesOf before(id);
  const int failed = table_below().id_create_qp(id, pd, attributes);
  if (failed == 0) note_queues(call, id, before);
  return failed;
}

int id_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes) {
  Call call("rdma_create_qp_ex");
  if (!call.may_use(id) || !may_use(call, nullptr, *attributes)) return errno = EINVAL, -1;
  const QueuesOf before(id);
  const int failed = table_below().id_create_qp_ex(id, attributes);
  if (failed == 0) note_queues(call, id, before);
  return failed;
}

void id_destroy_qp(rdma_cm_id* id) {
  Call call("rdma_destroy_qp");
  if (!call.may_use(id)) return;
  const QueuesOf before(id);
  if (before.qp) {
    check_queue_pair_end(call, before.qp);
    forget_requests_of(before.qp);
  }
  table_below().id_destroy_qp(id);
  forget_queues(call, before, QueuesOf(id));
}

int id_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attributes) {
  Call call("rdma_create_srq");
  if (!call.may_use(id) || !call.may_use(pd)) return errno = EINVAL, -1;
  const QueuesOf before(id);
  const int failed = table_below().id_create_srq(id, pd, attributes);
  if (failed == 0) note_queues(call, id, before);
  return failed;
}

int id_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  Call call("rdma_create_srq_ex");
  if (!call.may_use(id) || !may_use(call, *attributes)) return errno = EINVAL, -1;
  const QueuesOf before(id);
  const int failed = table_below().id_create_srq_ex(id, attributes);
  if (failed != 0) return failed;
  const bool names = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0 && attributes->cq;
  const bool extended = attributes->srq_type == IBV_SRQT_XRC;
  note_queues(call, id, before, extended ? names ? attributes->cq : id->recv_cq : nullptr);
  return failed;
}

void id_destroy_srq(rdma_cm_id* id) {
  Call call("rdma_destroy_srq");
  if (!call.may_use(id)) return;
  const QueuesOf before(id);
  table_below().id_destroy_srq(id);
  forget_queues(call, before, QueuesOf(id));
}

// With a protection domain and attributes, rdma_create_ep(3) makes the queue pair as well.
int create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  Call call("rdma_create_ep");
  if (!call.may_use(pd) || (attributes && !may_use(call, pd, *attributes))) {
    return errno = EINVAL, -1;
  }
  const int failed = table_below().create_ep(id, info, pd, attributes);
  if (failed != 0) return failed;
  call.made({.kind = Kind::id, .handle = *id});
  QueuesOf none(*id);
  none.qp = nullptr;
  none.srq = nullptr;
  note_queues(call, *id, none);
  return failed;
}

void destroy_ep(rdma_cm_id* id) {
  Call call("rdma_destroy_ep");
  if (!call.may_use(id)) return;
  const QueuesOf before(id);
  if (before.qp) {
    check_queue_pair_end(call, before.qp);
    forget_requests_of(before.qp);
  }
  QueuesOf none(id);
  none.qp = nullptr;
  none.send_cq = none.recv_cq = nullptr;
  none.srq = nullptr;
  table_below().destroy_ep(id);
  forget_queues(call, before, none);
  call.destroyed(id);
}

// The new id has a queue pair if the listener was made with attributes.
int get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  Call call("rdma_get_request");
  if (!call.may_use(listener)) return errno = EINVAL, -1;
  const int failed = table_below().get_request(listener, id);
  if (failed != 0) return failed;
  call.made({.kind = Kind::id, .handle = *id});
  QueuesOf none(*id);
  none.qp = nullptr;
  none.srq = nullptr;
  note_queues(call, *id, none);
  return failed;
}

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
  Call call("rdma_create_id");
  if (!call.may_use(channel)) return errno = EINVAL, -1;
  const int failed = table_below().create_id(channel, id, context, space);
  if (failed == 0) {
    Object object{.kind = Kind::id, .handle = *id};
    if (channel) object.uses.push_back(channel);
    call.made(std::move(object));
  }
  return failed;
}

int destroy_id(rdma_cm_id* id) {
  Call call("rdma_destroy_id");
  if (!call.may_use(id)) return errno = EINVAL, -1;
  check_events_acknowledged(call, id);
  const int failed = table_below().destroy_id(id);
  if (failed == 0) call.destroyed(id);
  return failed;
}

int migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  Call call("rdma_migrate_id");
  if (!call.may_use(id) || !call.may_use(channel)) return errno = EINVAL, -1;
  const int failed = table_below().migrate_id(id, channel);
  if (failed != 0) return failed;
  const std::lock_guard lock(checker().mutex);
  checker().objects.set_used(id, channel);
  return failed;
}

rdma_event_channel* create_event_channel() {
  Call call("rdma_create_event_channel");
  rdma_event_channel* const channel = table_below().create_event_channel();
  if (channel) call.made({.kind = Kind::event_channel, .handle = channel});
  return channel;
}

// The layers of C++ call it, in place of rdma_create_event_channel(3).
rdma_event_channel* create_event_channel_on(ibv_context* context) {
  Call call("rdma_create_event_channel");
  if (!call.may_use(context)) return errno = EINVAL, nullptr;
  rdma_event_channel* const channel = table_below().create_event_channel_on(context);
  if (channel) call.made({.kind = Kind::event_channel, .handle = channel});
  return channel;
}

void destroy_event_channel(rdma_event_channel* channel) {
  Call call("rdma_destroy_event_channel");
  if (!call.may_use(channel)) return;
  call.refused(channel);
  table_below().destroy_event_channel(channel);
  call.destroyed(channel);
}

// The id that waits for the acknowledgement. The new id of a connection request has none to wait
// for.
const rdma_cm_id* owner_of(const rdma_cm_event& event) {
  return event.event == RDMA_CM_EVENT_CONNECT_REQUEST ? event.listen_id : event.id;
}

// A separate function, because a thread may be cancelled in get_cm_event(), whose frame must not
// need a destructor.
void note_event(const rdma_cm_event& event) {
  Call call("rdma_get_cm_event");
  hook_context(event.id->verbs);
  {
    const std::lock_guard lock(checker().mutex);
    checker().events.fetched(owner_of(event));
  }
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST && is_new(event.id)) {
    call.made({.kind = Kind::id, .handle = event.id, .uses = {event.id->channel}});
  }
}

bool may_wait(const rdma_event_channel* channel) {
  Call call("rdma_get_cm_event");
  return call.may_use(channel);
}

int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (!may_wait(channel)) return errno = EINVAL, -1;
  InsideDevice::enter();
  const int failed = checker().below.table->get_cm_event(channel, event);
  InsideDevice::leave();
  if (failed == 0) note_event(**event);
  return failed;
}

int ack_cm_event(rdma_cm_event* event) {
  if (event) {
    const std::lock_guard lock(checker().mutex);
    checker().events.acknowledged(owner_of(*event));
  }
  return table_below().ack_cm_event(event);
}

int bind_addr(rdma_cm_id* id, sockaddr* address) {
  Call call("rdma_bind_addr");
  if (!call.may_use(id)) return errno = EINVAL, -1;
  const int failed = table_below().bind_addr(id, address);
  if (failed == 0) hook_context(id->verbs);
  return failed;
}

int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) {
  Call call("rdma_resolve_addr");
  if (!call.may_use(id)) return errno = EINVAL, -1;
  const int failed = table_below().resolve_addr(id, source, destination, timeout_ms);
  if (failed == 0) hook_context(id->verbs);
  return failed;
}

ibv_context** get_devices(int* count) {
  ibv_context** const list = table_below().get_devices(count);
  for (ibv_context** each = list; each && *each; ++each) hook_context(*each);
  return list;
}

}  // namespace

void hook_connections(provider::Table& table) {
  table.id_create_qp = id_create_qp;
  table.id_create_qp_ex = id_create_qp_ex;
  table.id_destroy_qp = id_destroy_qp;
  table.id_create_srq = id_create_srq;
  table.id_create_srq_ex = id_create_srq_ex;
  table.id_destroy_srq = id_destroy_srq;
  table.create_ep = create_ep;
  table.destroy_ep = destroy_ep;
  table.get_request = get_request;
  table.create_id = create_id;
  table.destroy_id = destroy_id;
  table.migrate_id = migrate_id;
  table.create_event_channel = create_event_channel;
  table.create_event_channel_on = create_event_channel_on;
  table.destroy_event_channel = destroy_event_channel;
  table.get_cm_event = get_cm_event;
  table.ack_cm_event = ack_cm_event;
  table.bind_addr = bind_addr;
  table.resolve_addr = resolve_addr;
  table.get_devices = get_devices;
}

}  // namespace weft::check
