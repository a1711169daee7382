// Functions of librdmacm: event channels, ids, addresses and devices.
#include <rdma/rdma_cma.h>

#include "dropin/export.h"
#include "dropin/provider_table.h"

namespace weft::dropin {

const provider::Table& table() {
  // A local static: several threads may make the first call at the same time.
  static const provider::Table& libibverbs = *weft_program_table();
  return libibverbs;
}

}  // namespace weft::dropin

using weft::dropin::table;

WEFT_EXPORT rdma_event_channel* rdma_create_event_channel() {
  return table().create_event_channel();
}

// The ids of the channel are destroyed and its events acknowledged before
// (rdma_destroy_event_channel(3)).
WEFT_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  table().destroy_event_channel(channel);
}

// Blocks, unless the program has made the descriptor of the channel non-blocking.
WEFT_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return table().get_cm_event(channel, event);
}

// Frees the event, with the private data that it points to (rdma_ack_cm_event(3)). Until then
// rdma_destroy_id() waits.
WEFT_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  return table().ack_cm_event(event);
}

WEFT_EXPORT const char* rdma_event_str(rdma_cm_event_type event) {
  return table().event_str(event);
}

// Without a channel the id is synchronous: its calls block until they are complete.
WEFT_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                               rdma_port_space space) {
  return table().create_id(channel, id, context, space);
}

WEFT_EXPORT int rdma_destroy_id(rdma_cm_id* id) {
  return table().destroy_id(id);
}

// On the active side this resolves the route as well. On the passive side the attributes are kept
// for the ids that rdma_get_request() returns (rdma_create_ep(3)).
WEFT_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd,
                               ibv_qp_init_attr* attributes) {
  return table().create_ep(id, info, pd, attributes);
}

WEFT_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  table().destroy_ep(id);
}

// Events that were not fetched move along. A null channel makes the id synchronous
// (rdma_migrate_id(3)).
WEFT_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return table().migrate_id(id, channel);
}

WEFT_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t bytes) {
  return table().set_option(id, level, name, value, bytes);
}

WEFT_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) {
  return table().get_src_port(id);
}

WEFT_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) {
  return table().get_dst_port(id);
}

WEFT_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  return table().bind_addr(id, address);
}

// A source is like a call of rdma_bind_addr(). Without one, and if the id has no address yet, the
// routing table chooses it (rdma_resolve_addr(3)).
WEFT_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                                  int timeout_ms) {
  return table().resolve_addr(id, source, destination, timeout_ms);
}

WEFT_EXPORT int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  return table().resolve_route(id, timeout_ms);
}

WEFT_EXPORT int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                 rdma_addrinfo** result) {
  return table().getaddrinfo(node, service, hints, result);
}

WEFT_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* info) {
  table().freeaddrinfo(info);
}

// These exist since rdma-core 60; older headers do not declare them.
WEFT_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                      const rdma_addrinfo* hints) {
  return table().resolve_addrinfo(id, node, service, hints);
}

WEFT_EXPORT int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  return table().query_addrinfo(id, info);
}

WEFT_EXPORT int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status,
                                    uint64_t argument) {
  return table().write_cm_event(id, static_cast<int>(event), status, argument);
}

// The contexts belong to librdmacm and stay open: rdma_free_devices() frees the array alone.
WEFT_EXPORT ibv_context** rdma_get_devices(int* count) {
  return table().get_devices(count);
}

WEFT_EXPORT void rdma_free_devices(ibv_context** list) {
  table().free_devices(list);
}
