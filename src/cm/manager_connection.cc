// Addresses and connections. In synchronous mode (rdma_create_id(3), no channel) the calls wait for
// their event.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cm/address_search.h"
#include "cm/addrinfo.h"
#include "cm/answer.h"
#include "cm/cm.h"
#include "cm/identifier.h"
#include "cm/newer.h"
#include "cm/ports.h"
#include "device/limits.h"
#include "device/queue_pair/xrc_domain.h"

namespace weft::cm {
namespace {

// Peers that are not Weft may refuse more private data: the kernel's siw closes the connection when
// it gets more than 256 bytes, four of which are RFC 6581's enhanced data.
constexpr std::size_t max_private_data_bytes = 252;
// librdmacm's value for rdma_create_ep(3). Addresses and routes are found at once, so that no
// timeout has an effect here.
constexpr int endpoint_timeout_ms = 2000;

// Appends to `out`, which may hold the private data of rdma_create_ep(3). The limit is that of the
// two together.
int take_private_data(const void* data, std::size_t bytes, std::vector<std::byte>& out) {
  if (!data || bytes == 0) return 0;
  const auto* at = static_cast<const std::byte*>(data);
  out.insert(out.end(), at, at + bytes);
  return out.size() > max_private_data_bytes ? EINVAL : 0;
}

device::Adapter& adapter_of(const rdma_cm_id& id) {
  return device::Context::of(id.verbs)->device().adapter();
}

// An id without a device is refused later, for that reason.
std::uint16_t max_read_depth(const rdma_cm_id& id) {
  if (!id.verbs) return device::limits::max_read_depth;
  return static_cast<std::uint16_t>(adapter_of(id).most(device::Capability::read_depth));
}

// `unset`: the value that asks for as much as possible. It gives `fallback`.
int take_depth(const rdma_cm_id& id, std::uint8_t asked, std::uint8_t unset, std::uint16_t fallback,
               std::uint16_t& depth) {
  if (asked != unset && asked > max_read_depth(id)) {
    // Counts the refusal.
    if (id.verbs) (void)adapter_of(id).grants(device::Capability::read_depth, asked);
    return EINVAL;
  }
  depth = asked == unset ? fallback : asked;
  return 0;
}

// On entry `wanted` holds the values for everything that the program does not set. Only an id with
// a queue pair may be connected without parameters: rdma_connect(3).
int take_parameters(const rdma_cm_id& id, const rdma_conn_param* given, ConnectParameters& wanted) {
  if (!given) return id.qp ? 0 : EINVAL;
  int failed = take_depth(id, given->responder_resources, RDMA_MAX_RESP_RES,
                          wanted.responder_resources, wanted.responder_resources);
  if (failed == 0) {
    failed = take_depth(id, given->initiator_depth, RDMA_MAX_INIT_DEPTH, wanted.initiator_depth,
                        wanted.initiator_depth);
  }
  wanted.qp_num = given->qp_num;
  // Of three bits.
  wanted.retries = std::min<std::uint8_t>(given->retry_count, 7);
  wanted.rnr_retries = std::min(given->rnr_retry_count, iwarp::rnr_retry_infinite);
  if (failed != 0) return failed;
  return take_private_data(given->private_data, given->private_data_len, wanted.private_data);
}

// Extended connections (XRC) have the port space of InfiniBand, as in librdmacm: the others fix the
// type.
bool fits(const rdma_addrinfo& info) {
  switch (info.ai_qp_type) {
    case IBV_QPT_UD:
      return info.ai_port_space == RDMA_PS_UDP;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return info.ai_port_space == RDMA_PS_IB;
    default:
      return info.ai_qp_type == IBV_QPT_RC && info.ai_port_space != RDMA_PS_UDP;
  }
}

}  // namespace

// In synchronous mode: waits for the event that answers the call, and keeps it in id->event.
int Manager::complete(rdma_cm_id* id) {
  if (!Identifier::of(id)->synchronous()) return 0;
  if (id->event) {
    ack_cm_event(id->event);
    id->event = nullptr;
  }
  if (get_cm_event(id->channel, &id->event) != 0) return -1;
  const int status = id->event->status;
  if (status == 0) return 0;
  // As in librdmacm. The status of other events is a negative errno value, or a positive status of
  // the UDP port space.
  if (newer::type_of(*id->event) == RDMA_CM_EVENT_REJECTED) return answer(ECONNREFUSED);
  return answer(std::abs(status));
}

int Manager::bind_addr(rdma_cm_id* id, sockaddr* address) {
  sockaddr_storage local{};
  if (!take_address(address, local)) return answer(EINVAL);
  return answer(Identifier::of(id)->bind(local));
}

int Manager::resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                          int /*timeout_ms*/) {
  sockaddr_storage from{};
  sockaddr_storage to{};
  if (!take_address(destination, to)) return answer(EINVAL);
  if (source && !take_address(source, from)) return answer(EINVAL);
  if (const int failed = Identifier::of(id)->resolve_address(from, to)) return answer(failed);
  return complete(id);
}

int Manager::resolve_route(rdma_cm_id* id, int /*timeout_ms*/) {
  if (const int failed = Identifier::of(id)->resolve_route()) return answer(failed);
  return complete(id);
}

int Manager::connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  Identifier& identifier = *Identifier::of(id);
  ConnectParameters wanted{.responder_resources = max_read_depth(*id),
                           .initiator_depth = max_read_depth(*id),
                           .private_data = identifier.endpoint_private_data};
  if (const int failed = take_parameters(*id, parameters, wanted)) return answer(failed);
  if (const int failed = identifier.connect(std::move(wanted))) return answer(failed);
  // Sent with the first attempt that starts. A call that is refused keeps the data for the next
  // one.
  identifier.endpoint_private_data.clear();
  return complete(id);
}

int Manager::establish(rdma_cm_id* id) {
  return answer(Identifier::of(id)->establish());
}

int Manager::listen(rdma_cm_id* id, int backlog) {
  return answer(Identifier::of(id)->listen(backlog));
}

int Manager::adopt(rdma_cm_id* listener, int connection) {
  device::sys::Descriptor owned(connection);
  return answer(Identifier::of(listener)->adopt(std::move(owned)));
}

int Manager::serve_host(rdma_cm_id* listener, bool serves) {
  return answer(Identifier::of(listener)->serve_host(serves));
}

int Manager::accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  Identifier& identifier = *Identifier::of(id);
  ConnectParameters wanted = identifier.requested_parameters();
  wanted.responder_resources = std::min(wanted.responder_resources, max_read_depth(*id));
  wanted.initiator_depth = std::min(wanted.initiator_depth, max_read_depth(*id));
  if (const int failed = take_parameters(*id, parameters, wanted)) return answer(failed);
  wanted.retries = ConnectParameters{}.retries;  // rdma_accept(3): ignored
  if (const int failed = identifier.accept(std::move(wanted))) return answer(failed);
  // An accepted request for datagrams causes no event on this side.
  return identifier.is_datagram() ? 0 : complete(id);
}

int Manager::reject(rdma_cm_id* id, const void* private_data, std::uint8_t private_data_bytes) {
  std::vector<std::byte> data;
  if (const int failed = take_private_data(private_data, private_data_bytes, data)) {
    return answer(failed);
  }
  return answer(Identifier::of(id)->reject(data));
}

int Manager::reject_ece(rdma_cm_id* id, const void* private_data, std::uint8_t private_data_bytes) {
  return reject(id, private_data, private_data_bytes);
}

int Manager::disconnect(rdma_cm_id* id) {
  Identifier& identifier = *Identifier::of(id);
  if (const int failed = identifier.disconnect()) return answer(failed);
  // Where the peer has disconnected first and its event was fetched already, no other event comes.
  return identifier.end_reported() || identifier.is_datagram() ? 0 : complete(id);
}

int Manager::join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
  attributes.addr = address;
  return join_multicast_ex(id, &attributes, context);
}

int Manager::join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes, void* context) {
  constexpr std::uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  // Bits that this version does not know may stand for fields behind the end of the structure.
  if (!attributes || attributes->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return answer(ENOTSUP);
  sockaddr_storage address{};
  const bool valid = (attributes->comp_mask & needed) == needed &&
                     attributes->join_flags < RDMA_MC_JOIN_FLAG_RESERVED &&
                     take_address(attributes->addr, address);
  if (!valid) return answer(EINVAL);
  const bool send_only = attributes->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  const int failed = Identifier::of(id)->join_group(address, send_only, context);
  return failed != 0 ? answer(failed) : complete(id);
}

int Manager::leave_multicast(rdma_cm_id* id, sockaddr* address) {
  sockaddr_storage group{};
  if (!take_address(address, group)) return answer(EADDRNOTAVAIL);
  return answer(Identifier::of(id)->leave_group(group));
}

// The program does not get the new id, and cannot destroy it. Its destruction rejects the request,
// and waits until the event is acknowledged.
int Manager::refuse(rdma_cm_event* request, int reason) {
  rdma_cm_id* const id = request->id;
  ack_cm_event(request);
  destroy_id(id);
  return answer(reason);
}

// rdma_get_request(3): the new id is synchronous, and has a queue pair with the attributes that
// were passed to rdma_create_ep(3).
int Manager::get_request(rdma_cm_id* listener, rdma_cm_id** id) {
  Identifier& identifier = *Identifier::of(listener);
  if (!identifier.synchronous()) return answer(EINVAL);
  if (listener->event) {
    ack_cm_event(listener->event);
    listener->event = nullptr;
  }
  rdma_cm_event* event = nullptr;
  if (get_cm_event(listener->channel, &event) != 0) return -1;
  int failed = std::abs(event->status);
  if (failed == 0 && newer::type_of(*event) != RDMA_CM_EVENT_CONNECT_REQUEST) failed = EINVAL;
  if (failed == 0 && identifier.endpoint_attributes) {
    ibv_qp_init_attr attributes = *identifier.endpoint_attributes;
    if (create_qp(event->id, listener->pd, &attributes) != 0) return refuse(event, errno);
  }
  if (failed != 0) {
    // Kept where the next call finds it and acknowledges it.
    listener->event = event;
    return answer(failed);
  }
  *id = event->id;
  (*id)->event = event;
  return 0;
}

// rdma_create_ep(3): an endpoint for RAI_PASSIVE is bound, any other is resolved and has a queue
// pair.
int Manager::create_ep(rdma_cm_id** id, rdma_addrinfo* info, ibv_pd* domain,
                       ibv_qp_init_attr* attributes) {
  if (!fits(*info)) return answer(EOPNOTSUPP);
  rdma_cm_id* made = nullptr;
  if (create_id(nullptr, &made, nullptr, static_cast<rdma_port_space>(info->ai_port_space)) != 0) {
    return -1;
  }
  made->qp_type = static_cast<ibv_qp_type>(info->ai_qp_type);
  int failed = 0;
  if (device::is_extended(info->ai_qp_type)) {
    failed = answer(device::refusal_of_xrc(registry_->context()->device()));
  }
  const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
  if (failed == 0) {
    failed = passive ? passive_endpoint(made, *info, domain, attributes)
                     : active_endpoint(made, *info, domain, attributes);
  }
  if (failed != 0) {
    // The destruction may change errno.
    const int reason = errno;
    destroy_ep(made);
    return answer(reason);
  }
  *id = made;
  return 0;
}

// The attributes are kept for the queue pairs of connection requests: see get_request().
int Manager::passive_endpoint(rdma_cm_id* id, const rdma_addrinfo& info, ibv_pd* domain,
                              const ibv_qp_init_attr* attributes) {
  if (bind_addr(id, info.ai_src_addr) != 0) return -1;
  if (domain) id->pd = domain;
  if (!attributes) return 0;
  auto& kept = Identifier::of(id)->endpoint_attributes;
  kept = *attributes;
  kept->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  return 0;
}

int Manager::active_endpoint(rdma_cm_id* id, const rdma_addrinfo& info, ibv_pd* domain,
                             ibv_qp_init_attr* attributes) {
  if (resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, endpoint_timeout_ms) != 0) return -1;
  if (resolve_route(id, endpoint_timeout_ms) != 0) return -1;
  if (attributes) {
    attributes->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (create_qp(id, domain, attributes) != 0) return -1;
  }
  return answer(take_private_data(info.ai_connect, info.ai_connect_len,
                                  Identifier::of(id)->endpoint_private_data));
}

void Manager::destroy_ep(rdma_cm_id* id) {
  if (id->qp) destroy_qp(id);
  if (id->srq) destroy_srq(id);
  destroy_id(id);
}

int Manager::getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                         rdma_addrinfo** result) {
  const int failed = AddressInfo::find(node, service, hints, result);
  if (failed != 0 || !AddressInfo::means_this_host(node, service, **result)) return failed;
  device::Context* const context = registry_->context();
  if (!context || context->device().addresses().empty()) return 0;
  // The first address leads; it is a loopback one only where the host or the user has no other.
  const sockaddr_storage& first = context->device().addresses().front().address;
  if (hints && hints->ai_family != 0 && hints->ai_family != first.ss_family) return 0;
  if (AddressInfo::set_source(**result, first)) return 0;
  freeaddrinfo(std::exchange(*result, nullptr));
  return answer(ENOMEM);
}

int Manager::resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                              const rdma_addrinfo* hints) {
  const auto owner = Identifier::of(id)->shared_from_this();
  if (const int failed = start_address_search(owner, node, service, hints)) return answer(failed);
  return complete(id);
}

int Manager::query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  return answer(Identifier::of(id)->query_addrinfo(info));
}

int Manager::write_cm_event(rdma_cm_id* id, int event, int status, std::uint64_t argument) {
  if (event != newer::event_user) return answer(EINVAL);
  return answer(Identifier::of(id)->write_event(status, argument));
}

}  // namespace weft::cm
