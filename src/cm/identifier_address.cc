// Addresses of an id: rdma_bind_addr(3), rdma_resolve_addr(3), rdma_resolve_route(3),
// rdma_set_option(3).
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "cm/identifier.h"
#include "cm/ports.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

template <typename T>
bool take_value(const void* value, std::size_t bytes, T& out) {
  if (!value || bytes != sizeof out) return false;
  std::memcpy(&out, value, sizeof out);
  return true;
}

sockaddr_storage loopback_of(int family) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
  }
  return address;
}

}  // namespace

int Identifier::bind(const sockaddr_storage& address) {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::idle ? bind_locked(address) : EINVAL;
}

// Where the user has given the device one address, the others have no device: the answer of a host
// whose other interfaces are no RNICs.
int Identifier::check_local(const sockaddr_storage& address) {
  const device::Settings& settings = registry_->settings();
  sockaddr_storage only{};
  if (settings.address.empty() || !device::parse_address(settings.address, only)) return 0;
  const bool served = device::is_any_address(address) || device::is_loopback_address(address) ||
                      device::same_host_address(address, only);
  return served ? 0 : ENODEV;
}

int Identifier::bind_locked(const sockaddr_storage& address) {
  if (!registry_->context()) return ENODEV;
  if (const int failed = check_local(address)) return failed;
  sockaddr_storage tcp = to_tcp(address, registry_->settings().port_offset);
  const int failed = is_datagram() ? open_service_port(tcp) : reserve(tcp, options_, reserved_);
  if (failed != 0) {
    if (failed == EADDRINUSE && !is_datagram()) registry_->report_address_in_use(tcp);
    return failed;
  }
  if (is_datagram()) tcp = service_port_->address();
  set_source(tcp);
  stage_ = Stage::bound;
  // A wildcard is every device's: verbs stays null until it is known which one it will be.
  return device::is_any_address(tcp) ? 0 : use_device();
}

int Identifier::resolve_address(const sockaddr_storage& source,
                                const sockaddr_storage& destination) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::idle && stage_ != Stage::bound) return EINVAL;
  if (!registry_->context()) return ENODEV;
  if (source.ss_family != AF_UNSPEC && source.ss_family != destination.ss_family) return EINVAL;
  const bool names_port = source.ss_family != AF_UNSPEC && device::port_of(source) != 0;
  if (stage_ == Stage::idle && names_port) {
    if (const int failed = bind_locked(source)) return failed;
  }
  const int failed = resolve_locked(source, destination);
  if (failed == EADDRNOTAVAIL || failed == ENODEV) return failed;  // of the caller's own source
  if (failed == 0) {
    stage_ = Stage::resolved;
    push(RDMA_CM_EVENT_ADDR_RESOLVED);
  } else {
    push(RDMA_CM_EVENT_ADDR_ERROR, -failed);
  }
  return 0;
}

int Identifier::resolve_locked(sockaddr_storage source, sockaddr_storage destination) {
  const std::uint16_t offset = registry_->settings().port_offset;
  // Whoever connects to "any" means this host, as with sockets.
  if (device::is_any_address(destination)) {
    const std::uint16_t port = device::port_of(destination);
    destination = loopback_of(destination.ss_family);
    device::set_port(destination, port);
  }
  std::uint16_t port = 0;
  if (stage_ == Stage::bound) {
    source = tcp_source();
    port = device::port_of(source);
    if (source.ss_family != destination.ss_family) return EINVAL;
  }
  const device::Settings& settings = registry_->settings();
  sockaddr_storage from = source;
  if (from.ss_family != AF_UNSPEC && device::is_any_address(from)) from = {};
  if (from.ss_family == AF_UNSPEC && !device::is_loopback_address(destination)) {
    sockaddr_storage only{};
    if (device::parse_address(settings.address, only) && only.ss_family == destination.ss_family) {
      from = only;
    }
  }
  if (from.ss_family != AF_UNSPEC) {
    if (const int failed = check_local(from)) return failed;
  }
  const bool group = is_datagram() && device::is_multicast(device::gid_of(destination));
  const int failed =
      group ? choose_group_source(destination, from) : choose_source(destination, from);
  if (failed != 0) return failed;
  device::set_port(from, port);
  set_source(from);
  set_destination(to_tcp(destination, offset));
  return use_device();
}

// A group is behind every interface: what is meant is the one that the first GID belongs to.
int Identifier::choose_group_source(const sockaddr_storage& group, sockaddr_storage& source) {
  if (source.ss_family != AF_UNSPEC) return 0;
  for (const auto& local : registry_->context()->device().addresses()) {
    if (local.address.ss_family != group.ss_family) continue;
    source = local.address;
    return 0;
  }
  return ENETUNREACH;
}

// The kernel routes; there is nothing to find out.
int Identifier::resolve_route() {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::resolved) return EINVAL;
  stage_ = Stage::routed;
  set_path();
  push(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

int Identifier::set_option(int name, const void* value, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::uint8_t small = 0;
  int flag = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (!take_value(value, bytes, small)) return EINVAL;
      options_.tos = small;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (!take_value(value, bytes, flag) || stage_ == Stage::listening) return EINVAL;
      options_.reuse_address = flag != 0;
      if (reserved_.valid()) {
        device::sys::set_option(reserved_.get(), SOL_SOCKET, SO_REUSEADDR, flag != 0 ? 1 : 0);
      }
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      // TCP decides this when it binds; a later wish would have to give the port away in between.
      if (!take_value(value, bytes, flag) || stage_ != Stage::idle) return EINVAL;
      options_.ipv6_only = flag != 0;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      // TCP has its own clock; the queue pair says what was asked for.
      if (!take_value(value, bytes, small)) return EINVAL;
      ack_timeout_ = small & 0x1F;  // verbs has five bits for it
      return 0;
    default:
      return ENOSYS;
  }
}

int Identifier::listen(int backlog) {
  device::Context* const context = registry_->context();
  if (!context) return ENODEV;
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::idle) {
    sockaddr_storage any{};
    any.ss_family = AF_INET;
    if (const int failed = bind_locked(any)) return failed;
  }
  if (stage_ != Stage::bound) return EINVAL;
  const int requests = backlog > 0 ? backlog : device::limits::default_backlog;
  if (is_datagram()) return listen_for_datagrams(requests);
  sockaddr_storage tcp{};
  device::sys::local_address(reserved_.get(), &tcp);
  // TCP's own queue is as long as the system allows: where it is full a client loses a second.
  if (const int failed = start_listening(reserved_.get(), SOMAXCONN)) {
    if (failed == EADDRINUSE) registry_->report_address_in_use(tcp);
    return failed;
  }
  stage_ = Stage::listening;
  listener_ = make_listener(context->device(), static_cast<std::size_t>(requests));
  return listener_->start();
}

int Identifier::adopt(device::sys::Descriptor connection) {
  device::Context* const context = registry_->context();
  if (!context) return ENODEV;
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(mutex_);
    if (is_datagram() || (stage_ != Stage::idle && stage_ != Stage::listening)) return EINVAL;
    if (stage_ == Stage::idle) {
      listener_ = make_listener(context->device(), SIZE_MAX);
      stage_ = Stage::listening;
    }
    listener = listener_;
  }
  return listener->adopt(std::move(connection));
}

std::shared_ptr<device::Listener> Identifier::make_listener(device::Device& device,
                                                            std::size_t requests) {
  device::Listener::Plan plan;
  plan.socket = std::move(reserved_);
  plan.tos = options_.tos;
  plan.max_requests = requests;
  plan.handshake_timeout_ns = registry_->options().handshake_timeout_ns;
  plan.requested = [weak = weak_from_this()](const auto& greeting) {
    if (const auto self = weak.lock()) self->on_request(greeting);
  };
  plan.dropped = [registry = registry_] { ++registry->counters().requests_dropped; };
  return std::make_shared<device::Listener>(device, std::move(plan));
}

}  // namespace weft::cm
