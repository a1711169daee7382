// Checks the layouts that programs were compiled against: those of rdma-core 13 to 64 on 64-bit
// Linux.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

#if UINTPTR_MAX > UINT32_MAX
namespace {

// 40 bytes on most processors, 48 on arm64.
constexpr std::size_t mutex_bytes = sizeof(pthread_mutex_t);

// The names are members of a public structure, which programs read without a call.
static_assert(sizeof(ibv_device) == 664);
static_assert(offsetof(ibv_device, name) == 24);
static_assert(offsetof(ibv_device, dev_name) == 88);
static_assert(offsetof(ibv_device, dev_path) == 152);
static_assert(offsetof(ibv_device, ibdev_path) == 408);

// Functions such as ibv_post_send() and ibv_poll_cq() are inline in verbs.h and call through `ops`,
// so that the place of each pointer is part of the ABI. By `abi_compat` they recognise a context
// that is inside of a verbs_context.
static_assert(sizeof(ibv_context) == 288 + mutex_bytes);
static_assert(offsetof(ibv_context, ops) == 8);
static_assert(sizeof(ibv_context_ops) == 256);
static_assert(offsetof(ibv_context, cmd_fd) == 264);
static_assert(offsetof(ibv_context, async_fd) == 268);
static_assert(offsetof(ibv_context, num_comp_vectors) == 272);
static_assert(offsetof(ibv_context, mutex) == 280);
static_assert(offsetof(ibv_context, abi_compat) == 280 + mutex_bytes);
// The part before the context grows with each release, so programs compute offsets backwards from
// the context.
static_assert(offsetof(verbs_context, sz) + sizeof(std::size_t) ==
              offsetof(verbs_context, context));
static_assert(sizeof(verbs_context) - offsetof(verbs_context, context) == sizeof(ibv_context));

static_assert(sizeof(ibv_pd) == 16);
static_assert(sizeof(ibv_mr) == 48);
static_assert(sizeof(ibv_mw) == 32);
static_assert(sizeof(ibv_ah) == 24);
static_assert(sizeof(ibv_comp_channel) == 16);
static_assert(sizeof(ibv_cq) == 88 + mutex_bytes);
static_assert(sizeof(ibv_srq) == 88 + mutex_bytes);
static_assert(sizeof(ibv_qp) == 120 + mutex_bytes);
// Programs allocate arrays of ibv_wc and lists of ibv_send_wr themselves.
static_assert(sizeof(ibv_wc) == 48);
static_assert(sizeof(ibv_send_wr) == 128);
static_assert(sizeof(ibv_device_attr) == 232);
// Old programs have room for the members before this one only.
static_assert(offsetof(ibv_port_attr, port_cap_flags2) == 48);

// librdmacm has no functions for these members: programs read them in the structure.
static_assert(sizeof(rdma_cm_id) == 416);
static_assert(offsetof(rdma_cm_id, verbs) == 0);
static_assert(offsetof(rdma_cm_id, channel) == 8);
static_assert(offsetof(rdma_cm_id, qp) == 24);
static_assert(offsetof(rdma_cm_id, route) == 32);
static_assert(offsetof(rdma_cm_id, ps) == 344);
static_assert(offsetof(rdma_cm_id, event) == 352);
static_assert(offsetof(rdma_cm_id, pd) == 400);
static_assert(offsetof(rdma_cm_id, qp_type) == 408);
static_assert(sizeof(rdma_cm_event) == 80);
static_assert(sizeof(rdma_addrinfo) == 96);

}  // namespace
#endif
