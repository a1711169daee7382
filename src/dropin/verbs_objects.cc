// Functions of libibverbs: the objects of a context.
#include <infiniband/verbs.h>

#include "dropin/export.h"
#include "dropin/provider_table.h"

// verbs.h has macros of these names. By the access flags they choose between the function of the
// name and ibv_reg_mr_iova2(), which takes optional flags. Programs import all three symbols.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using weft::dropin::table;

// Functions that return a pointer set errno. Most of those that return an int return the errno
// value itself (ibv_modify_qp(3), ibv_dereg_mr(3)).
WEFT_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return table().alloc_pd(context);
}

WEFT_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return table().dealloc_pd(pd);
}

WEFT_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return table().reg_mr(pd, address, length, access);
}

WEFT_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                    int access) {
  return table().reg_mr_iova(pd, address, length, iova, access);
}

WEFT_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                     unsigned access) {
  return table().reg_mr_iova2(pd, address, length, iova, access);
}

// The result is one of ibv_rereg_mr_err_code, which shows whether the old region still exists.
WEFT_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length,
                             int access) {
  return table().rereg_mr(mr, flags, pd, address, length, access);
}

WEFT_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return table().dereg_mr(mr);
}

// The descriptor belongs to the context that is returned (ibv_import_device(3)).
WEFT_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  return table().import_device(cmd_fd);
}

WEFT_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  return table().import_pd(context, handle);
}

WEFT_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  table().unimport_pd(pd);
}

// An imported region shows no address, unless it is one of this process.
WEFT_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  return table().import_mr(pd, handle);
}

WEFT_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  table().unimport_mr(mr);
}

WEFT_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  return table().import_dm(context, handle);
}

WEFT_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  table().unimport_dm(dm);
}

// The descriptor of a channel is in the public structure, so that programs can poll it.
WEFT_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return table().create_comp_channel(context);
}

WEFT_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return table().destroy_comp_channel(channel);
}

// The queue may be larger than it was asked for, but not smaller (ibv_create_cq(3)).
WEFT_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                                  ibv_comp_channel* channel, int vector) {
  return table().create_cq(context, entries, cq_context, channel, vector);
}

WEFT_EXPORT int ibv_resize_cq(ibv_cq* cq, int entries) {
  return table().resize_cq(cq, entries);
}

WEFT_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return table().destroy_cq(cq);
}

// Blocks. ibv_destroy_cq() waits until each event that was taken here is acknowledged, so a program
// that forgets ibv_ack_cq_events() blocks there.
WEFT_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return table().get_cq_event(channel, cq, cq_context);
}

WEFT_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned events) {
  table().ack_cq_events(cq, events);
}

// This function and ibv_create_qp() write the sizes that were granted back to the attributes.
WEFT_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  return table().create_srq(pd, attributes);
}

WEFT_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  return table().modify_srq(srq, attributes, mask);
}

WEFT_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  return table().query_srq(srq, attributes);
}

WEFT_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return table().destroy_srq(srq);
}

WEFT_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  return table().create_qp(pd, attributes);
}

WEFT_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return table().qp_to_qp_ex(qp);
}

WEFT_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  return table().modify_qp(qp, attributes, mask);
}

WEFT_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask,
                             ibv_qp_init_attr* initial) {
  return table().query_qp(qp, attributes, mask, initial);
}

// The result is an answer and not an error: 0 promises no order.
WEFT_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) {
  return table().query_qp_data_in_order(qp, opcode, flags);
}

WEFT_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return table().destroy_qp(qp);
}

WEFT_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return table().set_ece(qp, ece);
}

WEFT_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return table().query_ece(qp, ece);
}

WEFT_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  return table().create_ah(pd, attributes);
}

WEFT_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh,
                                          uint8_t port) {
  return table().create_ah_from_wc(pd, completion, grh, port);
}

// The attributes are those of the way back: the source of the datagram is the destination.
WEFT_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* completion,
                                    ibv_grh* grh, ibv_ah_attr* attributes) {
  return table().init_ah_from_wc(context, port, completion, grh, attributes);
}

WEFT_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return table().destroy_ah(ah);
}

// Only a queue pair of type UD can be attached. A second time for the same group has no effect: it
// still receives each message once (ibv_attach_mcast(3)).
WEFT_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return table().attach_mcast(qp, gid, lid);
}

WEFT_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return table().detach_mcast(qp, gid, lid);
}

WEFT_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes,
                                            uint8_t mac[], uint16_t* vlan) {
  return table().resolve_eth_l2_from_gid(context, attributes, mac, vlan);
}
