// The operations that verbs.h calls through the context, inline and without checks: the boundary
// between C programs and the device's objects. No exception crosses it.
#include <cerrno>
#include <new>

#include "device/completion/completion_queue.h"
#include "device/completion/extended_completion_queue.h"
#include "device/context.h"
#include "device/memory/domains.h"
#include "device/memory/on_demand.h"
#include "device/memory/special_memory.h"
#include "device/query.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/send_batch.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "device/queue_pair/xrc_domain.h"

namespace weft::device {
namespace {

int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  return CompletionQueue::of(cq)->poll(entries, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  return CompletionQueue::of(cq)->request_notification(solicited_only != 0);
}

// Moderation is the only attribute that ibv_modify_cq(3) defines.
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attributes) {
  if (attributes->attr_mask & ~std::uint32_t{IBV_CQ_ATTR_MODERATE}) return EINVAL;
  if (attributes->attr_mask & IBV_CQ_ATTR_MODERATE) {
    CompletionQueue::of(cq)->moderate(attributes->moderate.cq_count,
                                      attributes->moderate.cq_period);
  }
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
  return QueuePair::of(qp)->post_send(request, bad);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  return QueuePair::of(qp)->post_receive(request, bad);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* request, ibv_recv_wr** bad) {
  return SharedReceiveQueue::of(srq)->post(request, bad);
}

// verbs.h passes the size of its own structure, which may be older or newer than that of this
// build.
int extended_query_device(ibv_context* context, const ibv_query_device_ex_input* input,
                          ibv_device_attr_ex* attributes, std::size_t bytes) {
  if (input && input->comp_mask != 0) return EINVAL;
  return query_device_ex(*Context::of(context), attributes, bytes);
}

int extended_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
                        std::size_t bytes) {
  return query_port(*Context::of(context), port, attributes, bytes);
}

// Memory windows have no functions in libibverbs: verbs.h calls these through the context.
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return Context::of(pd->context)->allocate_window(*ProtectionDomain::of(pd), type);
}

int bind_mw(ibv_qp* qp, ibv_mw* window, ibv_mw_bind* bind) {
  return QueuePair::of(qp)->bind_window(*MemoryWindow::of(window), *bind);
}

int dealloc_mw(ibv_mw* window) {
  return Context::of(window->context)->deallocate_window(*MemoryWindow::of(window));
}

// Wraps a function as a C operation: std::bad_alloc becomes null with errno ENOMEM.
template <auto function>
struct Guarded;

template <typename R, typename... Arguments, R* (*function)(Arguments...)>
struct Guarded<function> {
  static R* call(Arguments... arguments) noexcept {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      errno = ENOMEM;
      return nullptr;
    }
  }
};

void set_memory_operations(verbs_context& context) {
  context.context.ops.alloc_mw = Guarded<alloc_mw>::call;
  context.context.ops.bind_mw = bind_mw;
  context.context.ops.dealloc_mw = dealloc_mw;
  context.advise_mr = advise_memory;
  context.alloc_null_mr = Guarded<allocate_null_region>::call;
  context.alloc_dm = Guarded<allocate_device_memory>::call;
  context.free_dm = free_device_memory;
  context.reg_dm_mr = Guarded<register_device_memory>::call;
  context.alloc_td = Guarded<allocate_thread_domain>::call;
  context.dealloc_td = free_thread_domain;
  context.alloc_parent_domain = Guarded<allocate_parent_domain>::call;
}

}  // namespace

bool polls_plainly(const ibv_context& context) {
  return context.ops.poll_cq == poll_cq;
}

// Operations that are not set here stay null, for which verbs.h fails with EOPNOTSUPP.
void set_operations(verbs_context& context) {
  ibv_context_ops& operations = context.context.ops;
  operations.poll_cq = poll_cq;
  operations.req_notify_cq = req_notify_cq;
  operations.post_send = post_send;
  operations.post_recv = post_recv;
  operations.post_srq_recv = post_srq_recv;
  context.query_port = extended_query_port;
  context.query_device_ex = extended_query_device;
  context.create_qp_ex = create_extended_queue_pair;
  context.create_cq_ex = create_extended_completion_queue;
  context.modify_cq = modify_cq;
  context.query_rt_values = query_real_time_values;
  context.open_xrcd = Guarded<open_xrc_domain>::call;
  context.close_xrcd = close_xrc_domain;
  context.create_srq_ex = Guarded<create_extended_shared_queue>::call;
  context.get_srq_num = number_of_shared_queue;
  context.open_qp = Guarded<open_queue_pair>::call;
  set_memory_operations(context);
}

}  // namespace weft::device
