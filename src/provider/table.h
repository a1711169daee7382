// The provider interface: all functions of libibverbs and librdmacm outside the data path, as one
// table. There are two instances: the embedded device, and the system's devices.
//
// Each member has the signature and the contract of the C function of the same name with the prefix
// `ibv_` or `rdma_`: see its man page for ownership, return value and errno. The data path is not
// part of the table: the inline functions of verbs.h call it through the objects that these
// functions return. No function throws, and all are thread-safe.
#pragma once

#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/log.h"
#include "base/receive_place.h"
#include "weft/counters.hpp"
#include "weft/device_options.hpp"

namespace weft::provider {

// An access of a peer to memory of this process, by its rkey. `right`: one of IBV_ACCESS_REMOTE_*.
struct RefusedAccess {
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  unsigned right = 0;
};

// Where a capture that a program starts is to go: to the function, or else to the file.
struct CaptureTarget {
  std::string path;  // becomes the one in use
  std::function<void(std::span<const std::byte>)> function;
};

struct CaptureCounts {
  bool running = false;
  std::uint64_t packets = 0;
  std::uint64_t packets_lost = 0;
  std::uint64_t unseen_connections = 0;
};

struct Table {
  // Devices and contexts.
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  int (*get_device_index)(ibv_device* device);
  std::uint64_t (*get_device_guid)(ibv_device* device);  // network order
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  // Reads a text that drivers export in sysfs. Returns the number of bytes without the newline, or
  // -1.
  int (*read_sysfs_file)(const char* directory, const char* file, char* text, std::size_t bytes);

  int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
  // Sets only the members before `port_cap_flags2`, which rdma-core 22 added.
  int (*query_port)(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes);
  int (*query_gid)(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid);
  int (*query_gid_ex)(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_bytes);
  ssize_t (*query_gid_table)(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                             std::uint32_t flags, std::size_t entry_bytes);
  // The values of sysfs: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
  int (*query_gid_type)(ibv_context* context, std::uint8_t port, unsigned index, int* type);
  int (*query_pkey)(ibv_context* context, std::uint8_t port, int index, std::uint16_t* pkey_be);
  int (*get_pkey_index)(ibv_context* context, std::uint8_t port, std::uint16_t pkey_be);

  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);

  int (*fork_init)();
  ibv_fork_status (*is_fork_initialized)();

  // Protection domains and memory.
  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t length, int access);
  ibv_mr* (*reg_mr_iova)(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         int access);
  ibv_mr* (*reg_mr_iova2)(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                          unsigned access);
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                           int fd, int access);
  int (*rereg_mr)(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
  int (*dereg_mr)(ibv_mr* mr);
  // Objects by their handles, of a context by its `cmd_fd`.
  ibv_context* (*import_device)(int descriptor);
  ibv_pd* (*import_pd)(ibv_context* context, std::uint32_t handle);
  void (*unimport_pd)(ibv_pd* pd);
  ibv_mr* (*import_mr)(ibv_pd* pd, std::uint32_t handle);
  void (*unimport_mr)(ibv_mr* mr);
  ibv_dm* (*import_dm)(ibv_context* context, std::uint32_t handle);
  void (*unimport_dm)(ibv_dm* dm);

  // Completion queues.
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* cq_context,
                       ibv_comp_channel* channel, int vector);
  int (*resize_cq)(ibv_cq* cq, int entries);
  int (*destroy_cq)(ibv_cq* cq);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  void (*ack_cq_events)(ibv_cq* cq, unsigned events);

  // As ibv_poll_cq(3), for a program that can do without the memory of a receive: a message may be
  // placed in `place`, and then leaves that memory as it is. Null where the device cannot do this.
  int (*poll_cq_into)(ibv_cq* cq, int entries, ibv_wc* completions, ReceivePlace* place);

  // Queue pairs and shared receive queues.
  ibv_srq* (*create_srq)(ibv_pd* pd, ibv_srq_init_attr* attributes);
  int (*modify_srq)(ibv_srq* srq, ibv_srq_attr* attributes, int mask);
  int (*query_srq)(ibv_srq* srq, ibv_srq_attr* attributes);
  int (*destroy_srq)(ibv_srq* srq);
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes);
  ibv_qp_ex* (*qp_to_qp_ex)(ibv_qp* qp);
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
  int (*query_qp_data_in_order)(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags);
  int (*destroy_qp)(ibv_qp* qp);
  int (*set_ece)(ibv_qp* qp, ibv_ece* ece);
  int (*query_ece)(ibv_qp* qp, ibv_ece* ece);

  // Counters, for which the C libraries have no function. Return 0 or an errno value: EOPNOTSUPP if
  // the device has none.
  int (*read_qp_counters)(ibv_qp* qp, QueuePairCounters* counters);
  int (*read_cq_counters)(ibv_cq* cq, CompletionQueueCounters* counters);
  int (*read_mr_counters)(ibv_mr* mr, MemoryRegionCounters* counters);
  int (*read_device_counters)(ibv_context* context, DeviceCounters* counters);
  // The last access of the peer that was refused, for the checks of programs; stag is 0 where there
  // was none.
  int (*read_refused_access)(ibv_qp* qp, RefusedAccess* refused);

  // As ppoll(2), also for descriptors of other kinds. With the embedded device a thread that blocks
  // here, if it is the only one, handles arriving data itself, so that it is woken without a
  // hand-over from the progress thread.
  int (*wait)(pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* mask);
  // Whether the device that the process shares has no thread (DeviceOptions::progress is manual),
  // so that nothing arrives unless a thread polls it, or calls wait(). Also before the device is
  // made.
  bool (*is_manual)();

  // Address handles and multicast.
  ibv_ah* (*create_ah)(ibv_pd* pd, ibv_ah_attr* attributes);
  ibv_ah* (*create_ah_from_wc)(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port);
  int (*init_ah_from_wc)(ibv_context* context, std::uint8_t port, ibv_wc* completion, ibv_grh* grh,
                         ibv_ah_attr* attributes);
  int (*destroy_ah)(ibv_ah* ah);
  int (*attach_mcast)(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);
  int (*detach_mcast)(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);
  int (*resolve_eth_l2_from_gid)(ibv_context* context, ibv_ah_attr* attributes, std::uint8_t* mac,
                                 std::uint16_t* vlan);

  // Connection management: event channels, ids, addresses.
  rdma_event_channel* (*create_event_channel)();
  void (*destroy_event_channel)(rdma_event_channel* channel);
  int (*get_cm_event)(rdma_event_channel* channel, rdma_cm_event** event);
  int (*ack_cm_event)(rdma_cm_event* event);
  const char* (*event_str)(rdma_cm_event_type event);
  int (*create_id)(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space);
  int (*destroy_id)(rdma_cm_id* id);
  int (*create_ep)(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* pd, ibv_qp_init_attr* attributes);
  void (*destroy_ep)(rdma_cm_id* id);
  int (*migrate_id)(rdma_cm_id* id, rdma_event_channel* channel);
  int (*set_option)(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes);
  std::uint16_t (*get_src_port)(rdma_cm_id* id);  // network order
  std::uint16_t (*get_dst_port)(rdma_cm_id* id);  // network order
  int (*bind_addr)(rdma_cm_id* id, sockaddr* address);
  int (*resolve_addr)(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms);
  int (*resolve_route)(rdma_cm_id* id, int timeout_ms);
  int (*getaddrinfo)(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** result);
  void (*freeaddrinfo)(rdma_addrinfo* info);
  int (*resolve_addrinfo)(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
  int (*query_addrinfo)(rdma_cm_id* id, rdma_addrinfo** info);
  int (*write_cm_event)(rdma_cm_id* id, int event, int status, std::uint64_t argument);
  ibv_context** (*get_devices)(int* count);
  void (*free_devices)(ibv_context** list);

  // Connection management: the queues of an id, connections.
  int (*id_create_qp)(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes);
  int (*id_create_qp_ex)(rdma_cm_id* id, ibv_qp_init_attr_ex* attributes);
  void (*id_destroy_qp)(rdma_cm_id* id);
  int (*id_create_srq)(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attributes);
  int (*id_create_srq_ex)(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes);
  void (*id_destroy_srq)(rdma_cm_id* id);
  int (*init_qp_attr)(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask);
  int (*connect)(rdma_cm_id* id, rdma_conn_param* parameters);
  int (*establish)(rdma_cm_id* id);
  int (*listen)(rdma_cm_id* id, int backlog);
  int (*get_request)(rdma_cm_id* listener, rdma_cm_id** id);
  int (*accept)(rdma_cm_id* id, rdma_conn_param* parameters);
  int (*reject)(rdma_cm_id* id, const void* private_data, std::uint8_t private_data_bytes);
  int (*reject_ece)(rdma_cm_id* id, const void* private_data, std::uint8_t private_data_bytes);
  int (*notify)(rdma_cm_id* id, ibv_event_type event);
  int (*disconnect)(rdma_cm_id* id);
  int (*join_multicast)(rdma_cm_id* id, sockaddr* address, void* context);
  int (*join_multicast_ex)(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes, void* context);
  int (*leave_multicast)(rdma_cm_id* id, sockaddr* address);
  int (*set_local_ece)(rdma_cm_id* id, ibv_ece* ece);
  int (*get_remote_ece)(rdma_cm_id* id, ibv_ece* ece);
  // The C library has no such function: passes an accepted TCP connection to `listener` as if it
  // had come to its port. The id must be new, or used only for this. Returns -1 and sets errno;
  // owns the descriptor in any case. A listening socket is kept, and announced to this host.
  int (*adopt)(rdma_cm_id* listener, int connection);

  // Memory that the programs at both ends of a queue pair share, if both are processes of one user
  // on one host. The C libraries have no such functions.
  // Offers the file of memory (memfd_create(2)) to the other end, before the queue pair connects,
  // and with it a second descriptor, `bell`, which may be -1. Owns both in any case. Returns 0 or
  // an errno value: EOPNOTSUPP if the device has no such peers, EISCONN.
  int (*share_memory)(ibv_qp* qp, int file, int bell);
  // Returns the file that the other end has offered, once, as a descriptor of the caller, and in
  // `bell` its second descriptor or -1; or returns -1 with errno EAGAIN while it is not known yet
  // how the connection moves its data, and EOPNOTSUPP if there is none. Both are as the peer has
  // made them: size and seals of the file must be checked, and the bell may be any descriptor.
  int (*take_shared_memory)(ibv_qp* qp, int* bell);

  // Options of devices in this process, for which the C libraries have no functions. Where these
  // fail, `why` becomes one sentence.
  // Sets the options of the device that the process shares. Returns 0 or an errno value: EBUSY if
  // it is in use, EOPNOTSUPP if the device is of another kind.
  int (*configure)(const DeviceOptions& options, std::string& why);
  // Opens a device of its own, which close_device() closes. Null with errno.
  ibv_context* (*open_configured)(const DeviceOptions& options, std::string& why);
  // Why the device that the process shares could not be made; empty if it exists, or no call
  // has needed it.
  void (*explain_no_device)(std::string& why);
  // Begins a capture of the device of `context`, and stores what the next two calls know it by. The
  // device must not be closed before it is stopped. Returns 0 or an errno value: EBUSY if one is
  // running, EOPNOTSUPP if the device has none, or that of opening the file.
  int (*start_capture)(ibv_context* context, CaptureTarget& target, std::shared_ptr<void>& capture,
                       std::string& why);
  // Returns 0, or EDEADLK if the capture's own function calls this.
  int (*stop_capture)(ibv_context* context, const std::shared_ptr<void>& capture);
  int (*read_capture)(ibv_context* context, const std::shared_ptr<void>& capture,
                      CaptureCounts& counts);
  // Where messages for the user go; null: to standard error.
  void (*set_log)(LogFunction function);
  // As create_event_channel(), for ids that use this device only: the one that the process shares,
  // or one of open_configured(). It must be closed behind them. Null with errno: EOPNOTSUPP if the
  // device is of another kind, EINVAL if it is one of open_configured() with manual progress.
  rdma_event_channel* (*create_event_channel_on)(ibv_context* context);
};

}  // namespace weft::provider
