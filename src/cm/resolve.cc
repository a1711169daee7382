#include "cm/resolve.h"

#include <netinet/in.h>

#include <cerrno>

#include "cm/ports.h"
#include "device/addresses.h"
#include "device/datagram/datagram_packet.h"
#include "device/route.h"

namespace weft::cm {
namespace {

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

// A group can be reached by every interface. The one of the first GID is used.
int choose_group_source(IdState& state, const sockaddr_storage& group, sockaddr_storage& source) {
  if (source.ss_family != AF_UNSPEC) return 0;
  for (const auto& local : state.registry->context()->device().addresses()) {
    if (local.address.ss_family != group.ss_family) continue;
    source = local.address;
    return 0;
  }
  return ENETUNREACH;
}

// As with sockets, a connection to "any" goes to this host.
void replace_any(sockaddr_storage& destination) {
  if (!device::is_any_address(destination)) return;
  const std::uint16_t port = device::port_of(destination);
  destination = loopback_of(destination.ss_family);
  device::set_port(destination, port);
}

// The source as far as it is known without asking the routing table: the program's, or the one
// address that the user has given the device. AF_UNSPEC where there is none.
sockaddr_storage known_source(IdState& state, const sockaddr_storage& source,
                              const sockaddr_storage& destination) {
  sockaddr_storage from = source;
  if (from.ss_family != AF_UNSPEC && device::is_any_address(from)) from = {};
  if (from.ss_family != AF_UNSPEC || device::is_loopback_address(destination)) return from;
  sockaddr_storage only{};
  const bool given = device::parse_address(state.registry->settings().address, only);
  return given && only.ss_family == destination.ss_family ? only : from;
}

}  // namespace

// The other addresses of the host have no device then, as those of a host with several interfaces
// of which one is an RNIC.
int check_local(IdState& state, const sockaddr_storage& address) {
  const device::Settings& settings = state.registry->settings();
  sockaddr_storage only{};
  if (settings.address.empty() || !device::parse_address(settings.address, only)) return 0;
  const bool served = device::is_any_address(address) || device::is_loopback_address(address) ||
                      device::same_host_address(address, only);
  return served ? 0 : ENODEV;
}

int resolve(IdState& state, sockaddr_storage source, sockaddr_storage destination) {
  replace_any(destination);
  std::uint16_t port = 0;
  // The socket is bound already, so neither the address nor the port can change.
  if (state.stage == Stage::bound) {
    source = state.tcp_source();
    port = device::port_of(source);
    if (source.ss_family != destination.ss_family) return EINVAL;
  }
  sockaddr_storage from = known_source(state, source, destination);
  if (from.ss_family != AF_UNSPEC) {
    if (const int failed = check_local(state, from)) return failed;
  }
  const bool group = state.is_datagram() && device::is_multicast(device::gid_of(destination));
  const int failed = group ? choose_group_source(state, destination, from)
                           : device::choose_source(destination, from);
  if (failed != 0) return failed;
  device::set_port(from, port);
  state.set_source(from);
  state.set_destination(to_tcp(destination, state.registry->settings().port_offset));
  return state.use_device();
}

}  // namespace weft::cm
