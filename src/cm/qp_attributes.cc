#include "cm/qp_attributes.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>

#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/datagram/datagram_packet.h"
#include "device/gid_table.h"
#include "device/lid.h"
#include "device/limits.h"
#include "device/query.h"

namespace weft::cm {
namespace {

constexpr std::uint8_t exactly = 2;  // a selector of path records: neither "more" nor "less than"
constexpr std::uint8_t hop_limit = 64;
constexpr unsigned first_group_lid = 0xC000;
// Both counters of retries have three bits, and 7 for "receiver not ready" means no limit.
constexpr std::uint8_t most_retries = 7;
// 4.096 µs · 2^18, about a second: the value of the kernel's connection manager for RoCE.
constexpr std::uint8_t second_timeout = 18;

std::uint8_t gid_index(const device::Device& device, const ibv_gid& gid) {
  const auto& addresses = device.addresses();
  const auto found = std::find_if(addresses.begin(), addresses.end(), [&](const auto& local) {
    const ibv_gid known = device::shown_gid(device, local.address);
    return std::equal(std::begin(known.raw), std::end(known.raw), std::begin(gid.raw));
  });
  // Loopback addresses can be used although the table may not show them.
  const auto position = found == addresses.end() ? 0 : found - addresses.begin();
  return static_cast<std::uint8_t>(
      device::row_of_address(device, static_cast<std::size_t>(position)));
}

// 0 in the personalities without LIDs. Multicast groups have the LIDs from 0xC000 on.
std::uint16_t lid_of_gid(const IdState& state, const ibv_gid& gid) {
  const device::Device& device = state.registry->context()->device();
  if (!device.has_lids()) return 0;
  if (!device::is_multicast(gid)) return device::lid_of(device::address_of(plain_gid(device, gid)));
  return static_cast<std::uint16_t>(first_group_lid | (gid.raw[14] << 8 | gid.raw[15]));
}

ibv_mtu path_mtu(IdState& state) {
  ibv_port_attr port{};
  device::query_port(*state.registry->context(), 1, &port, sizeof port);
  return port.active_mtu;
}

std::uint8_t max_read_depth(const IdState& state) {
  const device::Adapter& adapter = state.registry->context()->device().adapter();
  return static_cast<std::uint8_t>(adapter.most(device::Capability::read_depth));
}

// The same for every queue pair of the UDP port space.
void set_datagram_attributes(ibv_qp_attr& attributes, int& mask) {
  if (attributes.qp_state == IBV_QPS_INIT) {
    attributes.port_num = 1;
    attributes.qkey = RDMA_UDP_QKEY;
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  }
  if (attributes.qp_state == IBV_QPS_RTS) mask |= IBV_QP_SQ_PSN;
}

// The destination is not the number of a queue pair: it makes ours wait for the stream of this id.
// The timer for "receiver not ready" stays 0, which InfiniBand encodes as 655.36 ms, the longest.
void set_receive_attributes(IdState& state, ibv_qp_attr& attributes, int& mask) {
  set_address_vector(state, attributes.ah_attr, state.addresses().addr.ibaddr.dgid);
  attributes.path_mtu = path_mtu(state);
  attributes.dest_qp_num = device::slot::stream_of_cm;
  attributes.max_dest_rd_atomic = max_read_depth(state);
  mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

void set_send_attributes(const IdState& state, ibv_qp_attr& attributes, int& mask) {
  attributes.timeout = state.ack_timeout;
  attributes.retry_cnt = most_retries;
  attributes.rnr_retry = most_retries;
  attributes.max_rd_atomic = static_cast<std::uint8_t>(
      std::min<std::uint16_t>(state.requested_ord, max_read_depth(state)));
  mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
          IBV_QP_MAX_QP_RD_ATOMIC;
}

void set_initial_attributes(bool roce, ibv_qp_attr& attributes, int& mask) {
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attributes.port_num = 1;
  mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
  if (roce) mask |= IBV_QP_PKEY_INDEX;
}

}  // namespace

// Programs for InfiniBand read the first path of a resolved route. An iWARP device has none:
// route.num_paths stays 0, as with the kernel's.
void set_path(IdState& state) {
  if (!state.registry->context()->device().is_roce()) return;
  rdma_route& route = state.handle.id.route;
  ibv_sa_path_rec& path = state.handle.path;
  path = {};
  path.dgid = route.addr.addr.ibaddr.dgid;
  path.sgid = route.addr.addr.ibaddr.sgid;
  path.dlid = htons(lid_of_gid(state, path.dgid));
  path.slid = htons(lid_of_gid(state, path.sgid));
  path.hop_limit = hop_limit;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = route.addr.addr.ibaddr.pkey;
  path.mtu_selector = exactly;
  path.mtu = static_cast<std::uint8_t>(path_mtu(state));
  path.rate_selector = exactly;
  path.rate = IBV_RATE_100_GBPS;
  path.packet_life_time_selector = exactly;
  path.packet_life_time = second_timeout;
  route.path_rec = &path;
  route.num_paths = 1;
}

// An iWARP queue pair takes everything but its access flags from its stream.
int qp_attributes(IdState& state, ibv_qp_attr& attributes, int& mask) {
  // The other states need no attributes but the state itself: ibv_modify_qp(3).
  const ibv_qp_state next = attributes.qp_state;
  if (next != IBV_QPS_INIT && next != IBV_QPS_RTR && next != IBV_QPS_RTS) return EINVAL;
  device::Context* const context = state.registry->context();
  if (!context) return ENODEV;
  // Everything that the mask leaves out, or that is not known of the peer, is 0.
  attributes = {};
  attributes.qp_state = next;
  mask = IBV_QP_STATE;
  const bool roce = context->device().is_roce();
  if (state.is_datagram()) {
    set_datagram_attributes(attributes, mask);
  } else if (next == IBV_QPS_INIT) {
    set_initial_attributes(roce, attributes, mask);
  } else if (roce) {
    next == IBV_QPS_RTR ? set_receive_attributes(state, attributes, mask)
                        : set_send_attributes(state, attributes, mask);
  }
  return 0;
}

// The depths stay those of the whole device until the handshake is over.
ibv_qp_attr connection_attributes(IdState& state, const ConnectParameters& parameters, int& mask) {
  ibv_qp_attr attributes{};
  const bool complete = state.handle.id.qp && state.registry->context()->device().is_roce();
  if (complete) {
    set_receive_attributes(state, attributes, mask);
    set_send_attributes(state, attributes, mask);
  }
  attributes.timeout = state.ack_timeout;
  attributes.retry_cnt = parameters.retries;
  mask = (mask | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT) & ~IBV_QP_DEST_QPN;
  return attributes;
}

void set_address_vector(const IdState& state, ibv_ah_attr& vector, const ibv_gid& destination) {
  vector = {};
  vector.is_global = 1;
  vector.port_num = 1;
  vector.dlid = lid_of_gid(state, destination);
  vector.grh.dgid = destination;
  vector.grh.sgid_index =
      gid_index(state.registry->context()->device(), state.handle.id.route.addr.addr.ibaddr.sgid);
  vector.grh.hop_limit = hop_limit;
}

}  // namespace weft::cm
