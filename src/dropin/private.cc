// Symbols that only libibverbs and drivers of vendors use, and those for the drop-in librdmacm and
// for Weft's own layers.
#include <infiniband/verbs.h>

#include <cstddef>

#include "base/own_descriptors.h"
#include "dropin/export.h"
#include "dropin/provider_table.h"
#include "provider/embedded.h"
#include "provider/host_requests.h"
#include "provider/process.h"

using weft::dropin::table;

// Upstream's libibverbs has no such symbol.
WEFT_EXPORT const weft::provider::Table* weft_provider_table() {
  return &weft::provider::embedded();
}

WEFT_EXPORT void weft_count_refusal(weft::provider::Refusal why) {
  weft::provider::Process::current().count_refusal(why);
}

WEFT_EXPORT weft::own_descriptors::Account* weft_keep_own_descriptors(int first) {
  namespace own_descriptors = weft::own_descriptors;
  own_descriptors::Account* const account = own_descriptors::make_account();
  own_descriptors::keep_account(account, first);
  return account;
}

// For libweft-node.so, and only there.
extern "C" void weft_publish_counters();
WEFT_EXPORT void weft_publish_counters() {
  weft::provider::Process::publish_counters();
}

// For libweft-sockets.so, and only there: provider/host_requests.h.
extern "C" int weft_serve_host(rdma_cm_id* listener, bool serves);
WEFT_EXPORT int weft_serve_host(rdma_cm_id* listener, bool serves) {
  return weft::provider::serve_host(listener, serves);
}

extern "C" void weft_start_thread();
WEFT_EXPORT void weft_start_thread() {
  weft::provider::Process::start_thread();
}

WEFT_EXPORT const weft::provider::Table* weft_program_table() {
  return &table();
}

// Imported by ibv_devinfo.
WEFT_PRIVATE_EXPORT(ibv_query_gid_type)
int weft_ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
  return table().query_gid_type(context, port, index, type);
}

// -1 is the result for a file that cannot be read. A driver never gets this device, so that it has
// nothing to read here.
WEFT_PRIVATE_EXPORT(ibv_read_ibdev_sysfs_file)
int weft_ibv_read_ibdev_sysfs_file(char* /*text*/, std::size_t /*bytes*/, void* /*sysfs_device*/,
                                   const char* /*format*/, ...) {
  return -1;
}

// A flag that drivers read.
// The first declaration begins with a linkage specification, so that it defines nothing. The second
// one defines the variable.
WEFT_PRIVATE_EXPORT(verbs_allow_disassociate_destroy)
bool weft_verbs_allow_disassociate_destroy;
bool weft_verbs_allow_disassociate_destroy = false;

WEFT_PRIVATE_EXPORT(ibv_wr_opcode_str) const char* weft_ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return "IBV_WR_RDMA_WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "IBV_WR_RDMA_WRITE_WITH_IMM";
    case IBV_WR_SEND:
      return "IBV_WR_SEND";
    case IBV_WR_SEND_WITH_IMM:
      return "IBV_WR_SEND_WITH_IMM";
    case IBV_WR_RDMA_READ:
      return "IBV_WR_RDMA_READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "IBV_WR_ATOMIC_CMP_AND_SWP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "IBV_WR_ATOMIC_FETCH_AND_ADD";
    case IBV_WR_LOCAL_INV:
      return "IBV_WR_LOCAL_INV";
    case IBV_WR_BIND_MW:
      return "IBV_WR_BIND_MW";
    case IBV_WR_SEND_WITH_INV:
      return "IBV_WR_SEND_WITH_INV";
    case IBV_WR_TSO:
      return "IBV_WR_TSO";
    default:
      return "unknown";
  }
}
