// The operations that verbs.h calls through the context, inline and without a check: the seam
// between C programs and the device's objects. No exception crosses it.
#include <cerrno>
#include <new>

#include "device/completion_queue.h"
#include "device/context.h"
#include "device/extended_completion_queue.h"
#include "device/query.h"
#include "device/queue_pair.h"
#include "device/shared_receive_queue.h"

namespace weft::device {
namespace {

int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
  return CompletionQueue::of(cq)->poll(entries, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  return CompletionQueue::of(cq)->request_notification(solicited_only != 0);
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

int extended_query_device(ibv_context* context, const ibv_query_device_ex_input* input,
                          ibv_device_attr_ex* attributes, std::size_t bytes) {
  if (input && input->comp_mask != 0) return EINVAL;
  return query_device_ex(*Context::of(context), attributes, bytes);
}

int extended_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
                        std::size_t bytes) {
  return query_port(*Context::of(context), port, attributes, bytes);
}

// verbs.h asks this one for everything beyond a protection domain; there is nothing beyond it yet.
ibv_qp* extended_create_qp(ibv_context* /*context*/, ibv_qp_init_attr_ex* /*attributes*/) {
  errno = EOPNOTSUPP;
  return nullptr;
}

int no_bind(ibv_qp* /*qp*/, ibv_mw* /*window*/, ibv_mw_bind* /*bind*/) {
  return EOPNOTSUPP;
}
int no_dealloc(ibv_mw* /*window*/) {
  return EOPNOTSUPP;
}

}  // namespace

void set_operations(verbs_context& context) {
  ibv_context_ops& operations = context.context.ops;
  operations.poll_cq = poll_cq;
  operations.req_notify_cq = req_notify_cq;
  operations.post_send = post_send;
  operations.post_recv = post_recv;
  operations.post_srq_recv = post_srq_recv;
  operations.bind_mw = no_bind;
  operations.dealloc_mw = no_dealloc;
  context.query_port = extended_query_port;
  context.query_device_ex = extended_query_device;
  context.create_qp_ex = extended_create_qp;
  context.create_cq_ex = create_extended_completion_queue;
  context.query_rt_values = query_real_time_values;
}

}  // namespace weft::device
