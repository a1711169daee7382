#include "device/query.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "device/context.h"
#include "device/datagram/datagrams.h"
#include "device/gid_table.h"
#include "device/lid.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// Locally administered, because no vendor ID is assigned: 02 and "WF".
constexpr std::uint32_t vendor_id = 0x025746;
constexpr std::uint16_t full_member_pkey = 0xFFFF;
// Everything that a transport can do works with on-demand memory, because the pages are brought in
// by this process.
constexpr std::uint32_t on_demand_of_ud =
    IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
constexpr std::uint32_t on_demand_of_uc = on_demand_of_ud | IBV_ODP_SUPPORT_WRITE;
constexpr std::uint32_t on_demand_operations = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                               IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                               IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
constexpr std::uint8_t width_4x = 2;
constexpr std::uint8_t speed_25_gbit = 32;
constexpr std::uint8_t link_up = 5;
constexpr std::uint8_t link_disabled = 3;
constexpr std::uint64_t nanosecond_clock_khz = 1'000'000;  // completion timestamps count these

// The largest InfiniBand MTU that fits, with its headers, into a frame of the interface.
ibv_mtu path_mtu(const LocalAddress& local) {
  constexpr std::uint32_t headers_bytes = 40 + 8 + 12 + 16 + 4;  // IPv6 UDP BTH RETH ICRC
  ibv_mtu fits = IBV_MTU_256;
  for (const ibv_mtu larger : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if ((128U << larger) + headers_bytes <= local.mtu_bytes) fits = larger;
  }
  return fits;
}

// Zeroes the caller's structure and copies the part that both versions of it have.
template <typename T>
void hand_over(const T& ours, T* theirs, std::size_t bytes) {
  std::memset(static_cast<void*>(theirs), 0, bytes);
  std::memcpy(static_cast<void*>(theirs), &ours, std::min(bytes, sizeof ours));
}

}  // namespace

std::uint32_t datagram_mtu_bytes(const Device& device) {
  return 128U << path_mtu(device.addresses().front());
}

// Attributes that a program may use up to their limit come from Adapter and limits.h; the rest
// stays 0.
void query_device(Context& context, ibv_device_attr& attributes) {
  const Adapter& adapter = context.device().adapter();
  const auto most = [&](Capability capability) {
    return static_cast<int>(adapter.most(capability));
  };
  attributes = {};
  std::snprintf(attributes.fw_ver, sizeof attributes.fw_ver, "%s", WEFT_VERSION);
  attributes.node_guid = attributes.sys_image_guid = context.device().guid_be();
  attributes.max_mr_size = adapter.most(Capability::region_bytes);
  attributes.vendor_id = vendor_id;
  attributes.page_size_cap = ~std::uint64_t{0xFFF};  // any size from 4 KiB: nothing is pinned
  attributes.max_qp = most(Capability::queue_pairs);
  attributes.max_qp_wr = most(Capability::work_requests);
  attributes.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SRQ_RESIZE |
                                IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_MGT_EXTENSIONS;
  attributes.max_sge = most(Capability::slices);
  attributes.max_sge_rd = attributes.max_sge;
  attributes.max_cq = most(Capability::completion_queues);
  attributes.max_cqe = most(Capability::completions);
  attributes.max_mr = most(Capability::regions);
  attributes.max_mw = most(Capability::windows);
  if (attributes.max_mw > 0) {
    attributes.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  }
  attributes.max_pd = most(Capability::domains);
  attributes.max_qp_rd_atom = most(Capability::read_depth);
  attributes.max_qp_init_rd_atom = attributes.max_qp_rd_atom;
  attributes.max_res_rd_atom = attributes.max_qp_rd_atom * attributes.max_qp;
  // Atomics are processor instructions, so they exclude those of programs as well.
  attributes.atomic_cap = most(Capability::atomics) != 0 ? IBV_ATOMIC_GLOB : IBV_ATOMIC_NONE;
  attributes.max_srq = most(Capability::shared_receive_queues);
  attributes.max_srq_wr = most(Capability::shared_receives);
  attributes.max_srq_sge = attributes.max_sge;
  attributes.max_pkeys = 1;
  if (context.device().is_roce()) {
    attributes.device_cap_flags |= IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_XRC;
    attributes.max_ah = most(Capability::address_handles);
    attributes.max_mcast_grp = limits::max_multicast_groups;
    attributes.max_mcast_qp_attach = limits::max_multicast_members;
    attributes.max_total_mcast_qp_attach = std::numeric_limits<int>::max();
  }
  attributes.phys_port_cnt = 1;
}

// The plain attributes come first in the structure; less room than for them is an error.
int query_device_ex(Context& context, ibv_device_attr_ex* attributes, std::size_t bytes) {
  if (bytes < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex ours{};
  query_device(context, ours.orig_attr);
  ours.phys_port_cnt_ex = 1;
  ours.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  const bool atomics = context.device().adapter().most(Capability::atomics) != 0;
  ours.odp_caps.per_transport_caps.rc_odp_caps =
      on_demand_operations & ~(atomics ? 0U : std::uint32_t{IBV_ODP_SUPPORT_ATOMIC});
  if (context.device().is_roce()) {
    ours.xrc_odp_caps = ours.odp_caps.per_transport_caps.rc_odp_caps;
  }
  ours.odp_caps.per_transport_caps.uc_odp_caps = on_demand_of_uc;
  ours.odp_caps.per_transport_caps.ud_odp_caps = on_demand_of_ud;
  ours.max_dm_size = limits::max_device_memory_bytes;
  ours.completion_timestamp_mask = ~std::uint64_t{0};
  ours.cq_mod_caps.max_cq_count = std::numeric_limits<std::uint16_t>::max();
  ours.cq_mod_caps.max_cq_period = std::numeric_limits<std::uint16_t>::max();
  ours.hca_core_clock = nanosecond_clock_khz;
  hand_over(ours, attributes, bytes);
  return 0;
}

// In roce the active MTU follows the interface, because datagrams must not be fragmented. In iwarp
// TCP segments the stream, so the largest MTU is shown. Speed and width are constants for programs
// that print them.
int query_port(Context& context, std::uint8_t port, ibv_port_attr* attributes, std::size_t bytes) {
  // Ports are counted from 1, and there is one.
  if (port != 1) return EINVAL;
  ibv_port_attr ours{};
  Device& device = context.device();
  const bool down = device.faults() && device.faults()->port_down();
  ours.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  ours.max_mtu = IBV_MTU_4096;
  ours.active_mtu = device.is_roce() ? path_mtu(device.addresses().front()) : IBV_MTU_4096;
  ours.gid_tbl_len = static_cast<int>(gid_count(context));
  ours.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP;
  ours.max_msg_sz = limits::max_message_bytes;
  ours.pkey_tbl_len = 1;
  ours.active_width = width_4x;
  ours.active_speed = speed_25_gbit;
  ours.phys_state = down ? link_disabled : link_up;
  ours.max_vl_num = 1;
  ours.link_layer = IBV_LINK_LAYER_ETHERNET;
  if (device.is_roce()) {
    ours.qkey_viol_cntr = static_cast<std::uint32_t>(device.datagrams().counters().wrong_queue_key);
  }
  if (device.has_lids()) {
    ours.link_layer = IBV_LINK_LAYER_INFINIBAND;
    ours.lid = ours.sm_lid = lid_of_port(device);  // no subnet manager is needed or contacted
  } else if (device.is_roce()) {
    ours.port_cap_flags |= IBV_PORT_IP_BASED_GIDS;
    ours.flags = IBV_QPF_GRH_REQUIRED;  // address vectors need a GID, because there are no LIDs
  }
  hand_over(ours, attributes, bytes);
  return 0;
}

std::size_t gid_count(Context& context) {
  return gid_table_size(context.device());
}

int query_gid(Context& context, std::uint8_t port, int index, ibv_gid& gid) {
  if (port != 1 || index < 0) return EINVAL;
  const LocalAddress* local = address_of_row(context.device(), static_cast<std::size_t>(index));
  if (!local) return EINVAL;
  gid = shown_gid(context.device(), local->address);
  return 0;
}

int query_gid_entry(Context& context, std::uint32_t port, std::uint32_t index,
                    ibv_gid_entry& entry) {
  entry = {};
  const LocalAddress* local = address_of_row(context.device(), index);
  if (port != 1 || !local) return EINVAL;
  entry.gid = shown_gid(context.device(), local->address);
  entry.gid_index = index;
  entry.port_num = port;
  entry.gid_type = type_of_row(context.device(), index);
  entry.ndev_ifindex = context.device().has_lids() ? 0 : local->interface_index;
  return 0;
}

// The table has one row, the default partition with full membership.
int query_pkey(std::uint8_t port, int index, std::uint16_t& pkey_be) {
  if (port != 1 || index != 0) return EINVAL;
  pkey_be = htons(full_member_pkey);
  return 0;
}

}  // namespace weft::device
