// Addresses and options of an id: rdma_bind_addr(3), rdma_resolve_addr(3), rdma_resolve_route(3),
// rdma_set_option(3), rdma_listen(3).
#include <cerrno>
#include <cstring>

#include "base/own_options.h"
#include "cm/identifier.h"
#include "cm/newer.h"
#include "cm/ports.h"
#include "cm/qp_attributes.h"
#include "cm/resolve.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

// rdma_set_option(3) passes a value without its type, so only the size can be checked. The value is
// copied because its address may not be aligned.
template <typename T>
bool take_value(const void* value, std::size_t bytes, T& out) {
  if (!value || bytes != sizeof out) return false;
  std::memcpy(&out, value, sizeof out);
  return true;
}

}  // namespace

int Identifier::bind(const sockaddr_storage& address) {
  const std::lock_guard lock(state_->mutex);
  return state_->stage == Stage::idle ? bind_locked(address) : EINVAL;
}

// A wildcard address belongs to every device: verbs stays null until it is known which one is meant
// (rdma_bind_addr(3)).
int Identifier::bind_locked(const sockaddr_storage& address) {
  if (!state_->registry->context()) return ENODEV;
  if (const int failed = check_local(*state_, address)) return failed;
  sockaddr_storage tcp = to_tcp(address, state_->registry->settings().port_offset);
  if (const int failed = space_->bind(tcp)) return failed;
  state_->set_source(tcp);
  state_->stage = Stage::bound;
  return device::is_any_address(tcp) ? 0 : state_->use_device();
}

// Faults of the caller's own source are returned at once, others arrive as an event.
int Identifier::resolve_address(const sockaddr_storage& source,
                                const sockaddr_storage& destination) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stage != Stage::idle && state_->stage != Stage::bound) return EINVAL;
  if (!state_->registry->context()) return ENODEV;
  if (source.ss_family != AF_UNSPEC && source.ss_family != destination.ss_family) return EINVAL;
  // A source with a port is bound as rdma_bind_addr(3) does it, which reserves the port.
  const bool names_port = source.ss_family != AF_UNSPEC && device::port_of(source) != 0;
  if (state_->stage == Stage::idle && names_port) {
    if (const int failed = bind_locked(source)) return failed;
  }
  const int failed = resolve(*state_, source, destination);
  if (failed == EADDRNOTAVAIL || failed == ENODEV) return failed;
  if (failed != 0) {
    state_->push(RDMA_CM_EVENT_ADDR_ERROR, -failed);
  } else if (const auto fault =
                 state_->fault_at(faults::Point::resolve_address, state_->tcp_destination())) {
    state_->push(RDMA_CM_EVENT_ADDR_ERROR, static_cast<int>(fault->argument));
  } else {
    state_->stage = Stage::resolved;
    state_->push(RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  return 0;
}

// The kernel routes packets, so there is nothing to look up.
int Identifier::resolve_route() {
  const std::lock_guard lock(state_->mutex);
  if (state_->stage != Stage::resolved) return EINVAL;
  const sockaddr_storage destination = state_->tcp_destination();
  if (const auto fault = state_->fault_at(faults::Point::resolve_route, destination)) {
    state_->push(RDMA_CM_EVENT_ROUTE_ERROR, static_cast<int>(fault->argument));
    return 0;
  }
  state_->stage = Stage::routed;
  set_path(*state_);
  state_->push(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

int Identifier::qp_attributes(ibv_qp_attr& attributes, int& mask) {
  const std::lock_guard lock(state_->mutex);
  return cm::qp_attributes(*state_, attributes, mask);
}

int Identifier::set_option(int name, const void* value, std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  std::uint8_t small = 0;
  int flag = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (!take_value(value, bytes, small)) return EINVAL;
      state_->options.tos = small;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (!take_value(value, bytes, flag) || state_->stage == Stage::listening) return EINVAL;
      state_->options.reuse_address = flag != 0;
      space_->apply_reuse_address();
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      // TCP decides this when it binds. A later change would have to release the port meanwhile.
      if (!take_value(value, bytes, flag) || state_->stage != Stage::idle) return EINVAL;
      state_->options.ipv6_only = flag != 0;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      // TCP has its own timers. The value is only reported by ibv_query_qp(3).
      if (!take_value(value, bytes, small)) return EINVAL;
      state_->ack_timeout = small & 0x1F;  // verbs has five bits for it
      return 0;
    case reply_timeout_option:
      return take_value(value, bytes, state_->options.reply_timeout_ns) ? 0 : EINVAL;
    case refused_time_option: {
      std::uint64_t refused_ns = 0;
      if (!take_value(value, bytes, refused_ns)) return EINVAL;
      state_->options.refused_ns = refused_ns;
      return 0;
    }
    default:
      return ENOSYS;
  }
}

// An id that is not bound listens on any address, as a socket does.
int Identifier::listen(int backlog) {
  if (!state_->registry->context()) return ENODEV;
  const std::lock_guard lock(state_->mutex);
  if (state_->stage == Stage::idle) {
    sockaddr_storage any{};
    // Only IPv4, as with the kernel's rdma_cm.
    any.ss_family = AF_INET;
    if (const int failed = bind_locked(any)) return failed;
  }
  if (state_->stage != Stage::bound) return EINVAL;
  const int requests = backlog > 0 ? backlog : device::limits::default_backlog;
  return space_->listen(static_cast<std::size_t>(requests));
}

int Identifier::adopt(device::sys::Descriptor connection) {
  return state_->registry->context() ? space_->adopt(std::move(connection)) : ENODEV;
}

int Identifier::serve_host(bool serves) {
  return state_->registry->context() ? space_->serve_host(serves) : ENODEV;
}

// One search at a time for each id.
int Identifier::begin_addrinfo() {
  const std::lock_guard lock(state_->mutex);
  if (state_->stage != Stage::idle && state_->stage != Stage::bound) return EINVAL;
  if (resolving_addrinfo_) return EBUSY;
  resolving_addrinfo_ = true;
  return 0;
}

void Identifier::give_up_addrinfo() {
  const std::lock_guard lock(state_->mutex);
  resolving_addrinfo_ = false;
}

// The type that make_event() gets is a placeholder: those of newer versions are not part of the
// enumeration. If the id is destroyed meanwhile, the event is dropped.
void Identifier::end_addrinfo(AddressInfo::Owned found, int failed) {
  const std::lock_guard lock(state_->mutex);
  resolving_addrinfo_ = false;
  addrinfo_ = std::move(found);
  auto event = state_->make_event(RDMA_CM_EVENT_ADDR_RESOLVED, -failed);
  newer::set_type(event->event,
                  failed == 0 ? newer::event_addrinfo_resolved : newer::event_addrinfo_error);
  state_->push(std::move(event));
}

// The program frees the result, so it gets a copy and can ask again.
int Identifier::query_addrinfo(rdma_addrinfo** result) {
  const std::lock_guard lock(state_->mutex);
  if (!addrinfo_) return EINVAL;
  *result = AddressInfo::copy(*addrinfo_);
  return *result ? 0 : ENOMEM;
}

// The type given to make_event() is a placeholder here, too.
int Identifier::write_event(int status, std::uint64_t argument) {
  const std::lock_guard lock(state_->mutex);
  auto event = state_->make_event(RDMA_CM_EVENT_ADDR_RESOLVED, status);
  newer::set_type(event->event, newer::event_user);
  newer::set_argument(event->event, argument);
  state_->push(std::move(event));
  return 0;
}

}  // namespace weft::cm
