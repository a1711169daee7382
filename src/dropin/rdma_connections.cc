// Functions of librdmacm: the queues of an id, and connections.
#include <rdma/rdma_cma.h>

#include "dropin/export.h"
#include "dropin/provider_table.h"

using weft::dropin::table;

// The functions of librdmacm return -1 and set errno, while many of libibverbs return the errno
// value itself. The table has each function in its own convention, so that nothing is converted
// here.
WEFT_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
  return table().id_create_qp(id, pd, attributes);
}

WEFT_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes) {
  return table().id_create_qp_ex(id, attributes);
}

// A queue pair that was created for an id belongs to it, and is not for ibv_destroy_qp().
WEFT_EXPORT void rdma_destroy_qp(rdma_cm_id* id) {
  table().id_destroy_qp(id);
}

WEFT_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attributes) {
  return table().id_create_srq(id, pd, attributes);
}

WEFT_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  return table().id_create_srq_ex(id, attributes);
}

WEFT_EXPORT void rdma_destroy_srq(rdma_cm_id* id) {
  table().id_destroy_srq(id);
}

// For programs that move a queue pair of their own through the states: they ask for a state by
// `qp_state`, and get the attributes and the mask for ibv_modify_qp().
WEFT_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
  return table().init_qp_attr(id, attributes, mask);
}

WEFT_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  return table().connect(id, parameters);
}

// Only for an active side that made its queue pair without the id: it completes the connection
// after RDMA_CM_EVENT_CONNECT_RESPONSE (rdma_establish(3)).
WEFT_EXPORT int rdma_establish(rdma_cm_id* id) {
  return table().establish(id);
}

WEFT_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) {
  return table().listen(id, backlog);
}

// Only for a listener without an event channel, whose calls block (rdma_get_request(3)).
WEFT_EXPORT int rdma_get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  return table().get_request(listener, id);
}

// Unlike accept(2) this is not called on the listener, but on the id of its
// RDMA_CM_EVENT_CONNECT_REQUEST.
WEFT_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  return table().accept(id, parameters);
}

WEFT_EXPORT int rdma_reject(rdma_cm_id* id, const void* private_data, uint8_t bytes) {
  return table().reject(id, private_data, bytes);
}

WEFT_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* private_data, uint8_t bytes) {
  return table().reject_ece(id, private_data, bytes);
}

// By this a program passes on events of its queue pair, such as IBV_EVENT_COMM_EST
// (rdma_notify(3)).
WEFT_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return table().notify(id, event);
}

// The queue pair goes to the error state, in which posted requests are flushed
// (rdma_disconnect(3)).
WEFT_EXPORT int rdma_disconnect(rdma_cm_id* id) {
  return table().disconnect(id);
}

// The result follows as an event. The queue pair of the id, if it has one, is attached to the group
// (rdma_join_multicast(3)).
WEFT_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  return table().join_multicast(id, address, context);
}

WEFT_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes,
                                       void* context) {
  return table().join_multicast_ex(id, attributes, context);
}

WEFT_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) {
  return table().leave_multicast(id, address);
}

// Enhanced connection establishment: options that two adapters of one vendor exchange while they
// connect.
WEFT_EXPORT int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  return table().set_local_ece(id, ece);
}

WEFT_EXPORT int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  return table().get_remote_ece(id, ece);
}
