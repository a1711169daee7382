// The state that handles share: one struct for each C object. It keeps the objects that the C
// object was made from alive, and destroys the C object through the table of calls that created it.
// Destructors ignore errors: they cannot report them, and a failure means that the program has
// destroyed the C object itself.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "provider/table.h"
#include "weft/verbs/backend.hpp"

namespace weft::verbs::detail {

using provider::Table;

// For errors of calls that need a device: why there is none, behind a colon, or nothing.
[[nodiscard]] inline std::string reason_for(const Table& table, int error) {
  std::string why;
  if (error == ENODEV) table.explain_no_device(why);
  return why.empty() ? why : ": " + why;
}

struct DeviceListState {
  DeviceListState(const Table& calls, ibv_device** devices, int device_count)
      : table(calls), list(devices), count(device_count) {}
  ~DeviceListState() { table.free_device_list(list); }
  DeviceListState(const DeviceListState&) = delete;
  DeviceListState& operator=(const DeviceListState&) = delete;

  const Table& table;
  ibv_device** list;
  int count;
};

struct ContextState {
  ContextState(const Table& calls, Backend kind, ibv_context* opened, bool own)
      : table(calls), backend(kind), raw(opened), owned(own) {}
  ~ContextState() {
    if (owned) table.close_device(raw);
  }
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;

  // The device's name, for error messages.
  [[nodiscard]] std::string device_name() const { return table.get_device_name(raw->device); }

  const Table& table;
  Backend backend;
  ibv_context* raw;
  bool owned;  // false for contexts of rdma_cm, which closes them itself
};

struct XrcDomainState {
  XrcDomainState(std::shared_ptr<ContextState> from, ibv_xrcd* opened)
      : context(std::move(from)), raw(opened) {}
  ~XrcDomainState() { ibv_close_xrcd(raw); }
  XrcDomainState(const XrcDomainState&) = delete;
  XrcDomainState& operator=(const XrcDomainState&) = delete;

  std::shared_ptr<ContextState> context;
  ibv_xrcd* raw;
};

struct DomainState {
  DomainState(std::shared_ptr<ContextState> from, ibv_pd* made)
      : context(std::move(from)), raw(made) {}
  ~DomainState() { context->table.dealloc_pd(raw); }
  DomainState(const DomainState&) = delete;
  DomainState& operator=(const DomainState&) = delete;

  std::shared_ptr<ContextState> context;
  ibv_pd* raw;
};

// Memory that a region owns, of a file where possible; see ProtectionDomain::allocate_shared().
class SharedBytes {
 public:
  SharedBytes() = default;
  // Zero-initialised, and not touched. `file` becomes its descriptor; it becomes invalid where the
  // kernel has no such files, and the memory is ordinary. Empty where there is no memory at all.
  SharedBytes(std::size_t bytes, Descriptor& file);
  SharedBytes(SharedBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SharedBytes& operator=(SharedBytes&& other) = delete;
  ~SharedBytes();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

struct MemoryState {
  MemoryState(std::shared_ptr<DomainState> from, ibv_mr* made, std::vector<std::byte> memory)
      : domain(std::move(from)),
        raw(made),
        begin(static_cast<std::byte*>(made->addr)),
        address(reinterpret_cast<std::uint64_t>(made->addr)),
        own(std::move(memory)) {}
  MemoryState(std::shared_ptr<DomainState> from, ibv_mr* made, SharedBytes memory)
      : domain(std::move(from)),
        raw(made),
        begin(memory.bytes().data()),
        address(reinterpret_cast<std::uint64_t>(begin)),
        shared(std::move(memory)) {}
  // For memory that the processor cannot access (dma-buf).
  MemoryState(std::shared_ptr<DomainState> from, ibv_mr* made, std::uint64_t iova)
      : domain(std::move(from)), raw(made), begin(nullptr), address(iova) {}
  ~MemoryState() { domain->context->table.dereg_mr(raw); }
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;

  std::shared_ptr<DomainState> domain;
  ibv_mr* raw;
  std::byte* begin;
  std::uint64_t address;       // of the first byte, as work requests use it
  std::vector<std::byte> own;  // empty if the memory is the user's
  SharedBytes shared;          // the same
};

struct MemoryWindowState {
  MemoryWindowState(std::shared_ptr<DomainState> from, ibv_mw* made)
      : domain(std::move(from)), raw(made) {}
  ~MemoryWindowState() { ibv_dealloc_mw(raw); }
  MemoryWindowState(const MemoryWindowState&) = delete;
  MemoryWindowState& operator=(const MemoryWindowState&) = delete;

  // Keeps the region alive as long as the window. A region cannot be deregistered while a window is
  // bound to it, and no event reports that a later bind has replaced the binding.
  void keep(const std::shared_ptr<MemoryState>& region) {
    std::erase(regions, region);
    regions.push_back(region);
  }
  // The region of the last bind; null if there was none.
  [[nodiscard]] const MemoryState* bound_to() const {
    return regions.empty() ? nullptr : regions.back().get();
  }

  std::shared_ptr<DomainState> domain;
  std::vector<std::shared_ptr<MemoryState>> regions;  // that the window was ever bound to
  ibv_mw* raw;
};

struct ChannelState {
  ChannelState(std::shared_ptr<ContextState> from, ibv_comp_channel* made)
      : context(std::move(from)), raw(made) {}
  ~ChannelState() { context->table.destroy_comp_channel(raw); }
  ChannelState(const ChannelState&) = delete;
  ChannelState& operator=(const ChannelState&) = delete;

  std::shared_ptr<ContextState> context;
  ibv_comp_channel* raw;
  // Held while an event is fetched and counted for its queue: a queue that is destroyed in between
  // would wait forever for the acknowledgement of an event that is not counted yet.
  std::mutex fetching;
};

struct CompletionQueueState {
  CompletionQueueState(std::shared_ptr<ContextState> from, std::shared_ptr<ChannelState> wakes,
                       void* user)
      : context(std::move(from)), channel(std::move(wakes)), user_context(user) {}
  ~CompletionQueueState();
  CompletionQueueState(const CompletionQueueState&) = delete;
  CompletionQueueState& operator=(const CompletionQueueState&) = delete;

  std::shared_ptr<ContextState> context;
  std::shared_ptr<ChannelState> channel;
  ibv_cq* raw = nullptr;
  void* user_context;
  unsigned unacknowledged = 0;  // events; guarded by channel->fetching
};

struct SharedReceiveQueueState {
  SharedReceiveQueueState(std::shared_ptr<DomainState> from, ibv_srq* made)
      : domain(std::move(from)), raw(made) {}
  ~SharedReceiveQueueState() { domain->context->table.destroy_srq(raw); }
  SharedReceiveQueueState(const SharedReceiveQueueState&) = delete;
  SharedReceiveQueueState& operator=(const SharedReceiveQueueState&) = delete;

  std::shared_ptr<DomainState> domain;
  ibv_srq* raw;
};

struct AddressHandleState {
  AddressHandleState(std::shared_ptr<DomainState> from, ibv_ah* made)
      : domain(std::move(from)), raw(made) {}
  ~AddressHandleState() { domain->context->table.destroy_ah(raw); }
  AddressHandleState(const AddressHandleState&) = delete;
  AddressHandleState& operator=(const AddressHandleState&) = delete;

  std::shared_ptr<DomainState> domain;
  ibv_ah* raw;
};

struct EventChannelState {
  EventChannelState(const Table& calls, Backend kind, rdma_event_channel* made)
      : table(calls), backend(kind), raw(made) {}
  ~EventChannelState() { table.destroy_event_channel(raw); }
  EventChannelState(const EventChannelState&) = delete;
  EventChannelState& operator=(const EventChannelState&) = delete;

  const Table& table;
  Backend backend;
  rdma_event_channel* raw;
  std::shared_ptr<ContextState> device;  // of its ids; null: the one that is found by the address
};

struct IdState {
  IdState(std::shared_ptr<EventChannelState> events, rdma_cm_id* made)
      : channel(std::move(events)), raw(made) {}
  ~IdState() { channel->table.destroy_id(raw); }
  IdState(const IdState&) = delete;
  IdState& operator=(const IdState&) = delete;

  std::shared_ptr<EventChannelState> channel;
  rdma_cm_id* raw;
  bool of_request = false;  // it came with RDMA_CM_EVENT_CONNECT_REQUEST
};

struct QueuePairState {
  ~QueuePairState() {
    if (!raw) return;
    if (id) {
      id->channel->table.id_destroy_qp(id->raw);
    } else {
      domain->context->table.destroy_qp(raw);
    }
  }
  QueuePairState() = default;
  QueuePairState(const QueuePairState&) = delete;
  QueuePairState& operator=(const QueuePairState&) = delete;

  std::shared_ptr<DomainState> domain;
  std::shared_ptr<CompletionQueueState> send;
  std::shared_ptr<CompletionQueueState> receive;
  std::shared_ptr<SharedReceiveQueueState> shared;
  std::shared_ptr<IdState> id;  // set if rdma_cm has created the queue pair
  ibv_qp* raw = nullptr;
};

// A queue pair that rdma_cm has made is called through the table of its id.
[[nodiscard]] inline const Table& table_of(const QueuePairState& state) {
  return state.id ? state.id->channel->table : state.domain->context->table;
}

}  // namespace weft::verbs::detail
