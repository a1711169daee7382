#include "cm/shared_ports.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "base/after_fork.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "cm/identifier.h"
#include "cm/ports.h"
#include "cm/reservation.h"
#include "cm/stream_space.h"
#include "device/addresses.h"
#include "device/connect/slots.h"

namespace weft::cm {
namespace {

namespace sys = device::sys;

// RFC 5044 §7.1.1: an MPA request begins with "MPA ID Req Frame". These bytes are enough to tell it
// from other protocols, and the device waits for the rest.
constexpr std::string_view start_of_request = "MPA ";
// One second: the least that the option can express. See tcp(7).
constexpr int deferred_s = 1;

bool is_ipv6_only(int socket) {
  int only = 0;
  socklen_t bytes = sizeof only;
  return sys::get_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, &only, &bytes) >= 0 && only != 0;
}

// A wildcard address stands for those of its family; that of IPv6 also for IPv4, unless the socket
// is for IPv6 only.
bool covers(const sockaddr_storage& wide, bool wide_only, const sockaddr_storage& narrow,
            bool narrow_only) {
  if (device::port_of(wide) != device::port_of(narrow)) return false;
  if (!device::is_any_address(wide)) {
    return wide.ss_family == narrow.ss_family && device::same_host_address(wide, narrow);
  }
  const bool has_both = wide.ss_family == AF_INET6 && !wide_only;
  if (wide.ss_family != narrow.ss_family) return has_both;
  const bool needs_both =
      narrow.ss_family == AF_INET6 && device::is_any_address(narrow) && !narrow_only;
  return has_both || !needs_both;
}

bool overlap(const SharedPorts::Port& port, const sockaddr_storage& address, bool ipv6_only) {
  return covers(port.address, port.ipv6_only, address, ipv6_only) ||
         covers(address, ipv6_only, port.address, port.ipv6_only);
}

// A time that the program has set itself is longer, and stays.
bool defer_accept(int socket) {
  int already_s = 0;
  socklen_t bytes = sizeof already_s;
  const int known = sys::get_option(socket, IPPROTO_TCP, TCP_DEFER_ACCEPT, &already_s, &bytes);
  if (known >= 0 && already_s > 0) return true;
  return sys::set_option(socket, IPPROTO_TCP, TCP_DEFER_ACCEPT, deferred_s) >= 0;
}

// Queue pairs find each other at these ports, whose sockets belong to the device.
bool is_port_of_slot(std::uint16_t port) {
  return port >= device::slot::first_port && port < device::slot::first_port + device::slot::count;
}

bool speaks_mpa(int connection) {
  std::array<char, start_of_request.size()> first{};
  const std::ptrdiff_t got = sys::peek(connection, first.data(), first.size());
  return got == static_cast<std::ptrdiff_t>(first.size()) &&
         std::string_view(first.data(), first.size()) == start_of_request;
}

}  // namespace

SharedPorts::SharedPorts()
    : hooks_{
          .context = this,
          .take = [](void* self,
                     int connection) { return static_cast<SharedPorts*>(self)->take(connection); },
          .bound = [](void* self,
                      int socket) { static_cast<SharedPorts*>(self)->on_bound(socket); },
          .bind =
              [](void* self, int socket, const sockaddr* address, socklen_t bytes) {
                return static_cast<SharedPorts*>(self)->bind(socket, address, bytes);
              },
          .closing = [](void* self,
                        int socket) { static_cast<SharedPorts*>(self)->on_closing(socket); }} {}

// With `weft run --sockets` the program's listening sockets are libweft-sockets.so's, which tells
// MPA requests for streams from plain TCP in the same way.
bool SharedPorts::set_hooks(const SocketHooks* hooks) const {
  auto* const set = reinterpret_cast<SetSocketHooks*>(dlsym(RTLD_DEFAULT, set_socket_hooks_name));
  if (!set) return false;
  if (void* const sockets = dlopen("libweft-sockets.so", RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(sockets);
    return false;
  }
  set(hooks);
  return true;
}

void SharedPorts::add(Port port) {
  (void)set_hooks(&hooks_);
  if (port.shared) any_shared_.store(true);
  const std::lock_guard lock(mutex_);
  ports_.push_back(std::move(port));
}

void SharedPorts::remove(const StreamSpace* space) {
  if (abandoned_.load()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(ports_, [space](const Port& port) { return port.space == space; });
}

void SharedPorts::withdraw() {
  if (!abandoned_.load()) (void)set_hooks(nullptr);
}

void SharedPorts::abandon_after_fork() {
  abandoned_.store(true);
  walk_after_fork(mutex_, [this] { ports_.clear(); });
}

bool SharedPorts::share(const sockaddr_storage& address, bool ipv6_only) {
  const std::uint16_t number = device::port_of(address);
  if (abandoned_.load() || is_port_of_slot(number)) return false;
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::any_of(ports_,
                            [&](const Port& port) { return overlap(port, address, ipv6_only); })) {
      return false;  // another id has the port
    }
  }
  std::string reached_at;  // the addresses of the program's sockets, unless one has all
  bool whole = false;
  for (const int socket : own_sockets(number)) {
    sockaddr_storage bound{};
    if (sys::local_address(socket, &bound) < 0) continue;
    const bool only = is_ipv6_only(socket);
    const bool has_all = covers(bound, only, address, ipv6_only);
    if (!has_all && !covers(address, ipv6_only, bound, only)) continue;
    if (!defer_accept(socket)) return false;
    whole |= has_all;
    reached_at += (reached_at.empty() ? "" : ", ") + device::to_string(bound);
  }
  if (reached_at.empty() || !set_hooks(&hooks_)) return false;
  if (!whole) {
    log_format(LogLevel::warning, "rdma_cm",
               "port %d of rdma_cm is reached at %s only, where this program listens by TCP",
               number, reached_at.c_str());
  }
  return true;
}

std::optional<SharedPorts::Port> SharedPorts::port_of_connection(const sockaddr_storage& local) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      ports_, [&](const Port& port) { return covers(port.address, port.ipv6_only, local, true); });
  if (found == ports_.end()) return std::nullopt;
  return *found;
}

// A child of fork(2) has no device for them: its program gets all connections, as it would without
// Weft.
bool SharedPorts::take(int connection) {
  sockaddr_storage local{};
  if (abandoned_.load() || sys::local_address(connection, &local) < 0) return false;
  const auto port = port_of_connection(without_mapping(local));
  if (!port || !speaks_mpa(connection)) return false;
  sys::Descriptor taken(connection);
  fcntl(connection, F_SETFD, FD_CLOEXEC);
  // Where no id listens any more, the connection is closed, as TCP would refuse it.
  if (const auto owner = port->owner.lock()) (void)port->space->adopt(std::move(taken));
  return true;
}

void SharedPorts::on_bound(int socket) {
  sockaddr_storage bound{};
  if (abandoned_.load() || sys::local_address(socket, &bound) < 0) return;
  const bool only = is_ipv6_only(socket);
  const std::lock_guard lock(mutex_);
  if (std::ranges::any_of(ports_, [&](const Port& port) {
        return covers(bound, only, port.address, port.ipv6_only);
      })) {
    (void)defer_accept(socket);
  }
}

// Only a socket at the very address of an id takes its place, so that no other socket can be in the
// way. What the device has accepted there may still be open: SO_REUSEADDR, which these connections
// have as well, lets the program's socket bind beside them.
int SharedPorts::bind(int socket, const sockaddr* given, socklen_t bytes) {
  sockaddr_storage address{};
  int type = 0;
  socklen_t type_bytes = sizeof type;
  const bool is_stream =
      sys::get_option(socket, SOL_SOCKET, SO_TYPE, &type, &type_bytes) >= 0 && type == SOCK_STREAM;
  if (abandoned_.load() || !is_stream || !take_address(given, address)) return EADDRINUSE;
  const bool only = is_ipv6_only(socket);
  std::optional<Port> port;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(ports_, [&](const Port& it) {
      return covers(it.address, it.ipv6_only, address, only) &&
             covers(address, only, it.address, it.ipv6_only);
    });
    if (found != ports_.end()) port = *found;
  }
  const auto owner = port ? port->owner.lock() : nullptr;
  if (!owner || !defer_accept(socket)) return EADDRINUSE;
  port->space->leave_port();
  int reuse = 0;
  socklen_t reuse_bytes = sizeof reuse;
  sys::get_option(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, &reuse_bytes);
  sys::set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  const int bound = sys::bind(socket, given, bytes);
  sys::set_option(socket, SOL_SOCKET, SO_REUSEADDR, reuse);
  if (bound < 0) return -bound;
  any_shared_.store(true);
  const std::lock_guard lock(mutex_);
  for (Port& it : ports_) it.shared |= it.space == port->space;
  return 0;
}

// A duplicate keeps the port. Where another descriptor of the program listens there still, that one
// goes on as before.
void SharedPorts::on_closing(int descriptor) {
  sockaddr_storage bound{};
  if (!any_shared_.load() || abandoned_.load() || !is_listening(descriptor) ||
      sys::local_address(descriptor, &bound) < 0) {
    return;
  }
  const bool only = is_ipv6_only(descriptor);
  std::optional<Port> port;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(ports_, [&](const Port& it) {
      return it.shared && covers(bound, only, it.address, it.ipv6_only);
    });
    if (found == ports_.end()) return;
    port = *found;
  }
  const auto listens_too = [descriptor](int other) {
    return other != descriptor && is_listening(other);
  };
  const auto owner = port->owner.lock();
  if (!owner || std::ranges::any_of(own_sockets(device::port_of(bound)), listens_too)) return;
  sys::Descriptor kept(own_descriptors::copy_high(descriptor));
  if (!kept.valid()) return;
  sys::set_option(kept.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
  port->space->take_port(std::move(kept));
}

}  // namespace weft::cm
