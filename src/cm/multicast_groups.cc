#include "cm/multicast_groups.h"

#include <algorithm>
#include <cerrno>

#include "cm/identifier.h"
#include "cm/qp_attributes.h"
#include "device/addresses.h"
#include "device/datagram/datagrams.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::cm {
namespace {

// Packets to a group stay in the local network.
constexpr std::uint8_t group_hop_limit = 1;

}  // namespace

// A failure to attach is reported as an event, as by librdmacm, where joining takes its time.
int MulticastGroups::join(const sockaddr_storage& address, bool send_only, void* context) {
  const std::lock_guard lock(state_.mutex);
  const bool has_device = state_.handle.id.verbs != nullptr && state_.stage != Stage::destroyed;
  const ibv_gid gid = device::gid_of(address);
  if (!state_.is_datagram() || !has_device || !device::is_multicast(gid)) return EINVAL;
  int failed = 0;
  ibv_qp* const own = state_.handle.id.qp;
  // A member that only sends receives nothing, so its queue pair is not attached.
  const bool attach = own != nullptr && !send_only;
  if (attach) {
    auto& datagrams = state_.registry->context()->device().datagrams();
    failed = datagrams.attach(device::QueuePair::of(own)->shared_from_this(), gid);
  }
  if (failed != 0) {
    auto event = state_.make_event(RDMA_CM_EVENT_MULTICAST_ERROR, -failed);
    event->event.param.ud.private_data = context;
    state_.push(std::move(event));
    return 0;
  }
  groups_.push_back({address, gid, attach});
  auto event = state_.make_event(RDMA_CM_EVENT_MULTICAST_JOIN);
  rdma_ud_param& group = event->event.param.ud;
  group.private_data = context;  // rdma_join_multicast(3)
  set_address_vector(state_, group.ah_attr, gid);
  group.ah_attr.grh.hop_limit = group_hop_limit;
  group.qp_num = device::multicast_queue_pair;
  group.qkey = RDMA_UDP_QKEY;
  state_.push(std::move(event));
  return 0;
}

int MulticastGroups::leave(const sockaddr_storage& address) {
  const std::lock_guard lock(state_.mutex);
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return device::same_host_address(group.address, address);
  });
  if (found == groups_.end()) return EADDRNOTAVAIL;
  const Group group = *found;
  // Before the queue pair is detached: the id is no member any more, even where that fails.
  groups_.erase(found);
  ibv_qp* const own = state_.handle.id.qp;
  if (!group.attached || !own) return 0;
  auto& datagrams = state_.registry->context()->device().datagrams();
  return datagrams.detach(*device::QueuePair::of(own), group.gid);
}

}  // namespace weft::cm
