#include "cm/id_state.h"

#include <netinet/in.h>

#include <cerrno>

#include "cm/identifier.h"
#include "cm/ports.h"
#include "cm/qp_attributes.h"
#include "device/addresses.h"
#include "device/gid_table.h"

namespace weft::cm {

IdState::IdState(std::shared_ptr<Registry> shared, std::shared_ptr<Channel> events, bool waits,
                 rdma_port_space ps, ibv_qp_type qp_type, void* context)
    : registry(std::move(shared)), channel(std::move(events)), synchronous(waits) {
  handle.id.channel = channel ? channel->handle() : nullptr;
  handle.id.context = context;
  handle.id.ps = ps;
  handle.id.qp_type = qp_type;
}

// rdma_get_cm_event(3): the id of a request inherits the listener's context.
std::unique_ptr<IdState> IdState::make_request(const sockaddr_storage& source,
                                               const sockaddr_storage& destination) {
  const rdma_cm_id& listener = handle.id;
  auto made = std::make_unique<IdState>(registry, nullptr, false, listener.ps, listener.qp_type,
                                        listener.context);
  made->set_source(without_mapping(source));
  made->set_destination(without_mapping(destination));
  // A connection has one local address, so `verbs` is set even where the listener is bound to a
  // wildcard.
  made->use_device();
  set_path(*made);
  made->stage = Stage::requested;
  made->passive = true;
  return made;
}

std::weak_ptr<Identifier> IdState::owner() const {
  return handle.owner->weak_from_this();
}

std::unique_ptr<Event> IdState::make_event(rdma_cm_event_type type, int status) {
  auto event = std::make_unique<Event>();
  event->event.id = &handle.id;
  event->event.event = type;
  event->event.status = status;
  event->owner = handle.owner->shared_from_this();
  return event;
}

// Drops events of destroyed ids here, so that no caller has to check.
void IdState::push(std::unique_ptr<Event> event) {
  if (stage != Stage::destroyed && channel) channel->push(std::move(event));
}

// With mutex held. The call is kept by this id, so that it does not come after the id's end.
void IdState::push_disconnected() {
  push(RDMA_CM_EVENT_DISCONNECTED);
  const auto fault = fault_at(faults::Point::disconnect, tcp_destination());
  if (!fault) return;
  timewait = device::DelayedCall::start(
      registry->context()->engine(), static_cast<std::uint64_t>(fault->argument),
      [weak = owner(), this] {
        const auto id = weak.lock();  // this object is a part of it
        if (!id) return;
        const std::lock_guard lock(mutex);
        push(RDMA_CM_EVENT_TIMEWAIT_EXIT);
      });
}

// rdma_get_cm_event(3): `id` is the new id, and `listen_id` the one that listens. The event still
// belongs to the listener, as set by make_event().
void IdState::push_request(std::unique_ptr<Event> event,
                           const std::shared_ptr<Identifier>& request) {
  event->event.id = request->handle();
  event->event.listen_id = &handle.id;
  event->request = request;
  push(std::move(event));
}

std::size_t IdState::least_private_data(InfinibandPrivateData message) const {
  const bool pads = registry->context()->device().is_strict_roce();
  return pads ? static_cast<std::size_t>(message) : 0;
}

void IdState::set_retries(rdma_conn_param& parameters) const {
  if (!registry->context()->device().is_roce()) return;
  constexpr std::uint8_t most_retries = 7;  // of Sends without a receive: without end
  parameters.retry_count = most_retries;
  parameters.rnr_retry_count = most_retries;
  parameters.flow_control = 1;
}

std::optional<faults::Action> IdState::fault_at(faults::Point step,
                                                const sockaddr_storage& peer) const {
  device::DeviceFaults* const rules = registry->context()->device().faults();
  if (!rules) return std::nullopt;
  // A request arrives at the id that listens.
  const bool accepts = passive || step == faults::Point::connect_request;
  const faults::Side side = accepts ? faults::Side::passive : faults::Side::active;
  return rules->connecting(step, {.peer = device::gid_of(peer), .side = side});
}

// There is one device with one port and the default partition key, as of an Ethernet adapter.
int IdState::use_device() {
  device::Context* const context = registry->context();
  ibv_pd* const domain = registry->default_domain();
  if (!context || !domain) return ENODEV;
  rdma_cm_id& id = handle.id;
  id.verbs = context->verbs();
  id.port_num = 1;
  // A domain that is set already stays: rdma_create_qp(3) stores the one that it uses.
  if (!id.pd) id.pd = domain;
  id.route.addr.addr.ibaddr.pkey = htons(0xFFFF);
  return 0;
}

// Where there is no device, the id keeps its addresses all the same.
ibv_gid IdState::gid_shown_for(const sockaddr_storage& address) const {
  device::Context* const context = registry->context();
  return context ? device::shown_gid(context->device(), address) : device::gid_of(address);
}

void IdState::set_source(const sockaddr_storage& tcp_address) {
  addresses().src_storage = from_tcp(tcp_address, registry->settings().port_offset);
  addresses().addr.ibaddr.sgid = gid_shown_for(tcp_address);
}

void IdState::set_destination(const sockaddr_storage& tcp_address) {
  addresses().dst_storage = from_tcp(tcp_address, registry->settings().port_offset);
  addresses().addr.ibaddr.dgid = gid_shown_for(tcp_address);
}

sockaddr_storage IdState::tcp_source() const {
  return to_tcp(handle.id.route.addr.src_storage, registry->settings().port_offset);
}

sockaddr_storage IdState::tcp_destination() const {
  return to_tcp(handle.id.route.addr.dst_storage, registry->settings().port_offset);
}

}  // namespace weft::cm
