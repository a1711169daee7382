#include "cm/reservation.h"

#include <dirent.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "device/addresses.h"

namespace weft::cm {
namespace {

namespace sys = device::sys;

const sockaddr* generic(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

int open_stream(int family, sys::Descriptor& socket) {
  socket.reset(sys::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (socket.valid()) return 0;
  // An invalid descriptor holds the negative errno value that sys::socket() has returned.
  const int failed = socket.release();
  return -failed;
}

}  // namespace

// A port that is only in TIME_WAIT may be reused, but not one that another socket has bound. Linux
// lets two sockets share a port where both set SO_REUSEADDR and none listens. So the option is set
// only to get past TIME_WAIT, and is cleared again until the socket listens.
int reserve(sockaddr_storage& address, const SocketOptions& options, sys::Descriptor& socket) {
  sys::Descriptor made;
  if (const int failed = open_stream(address.ss_family, made)) return failed;
  if (address.ss_family == AF_INET6) {
    sys::set_option(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, options.ipv6_only ? 1 : 0);
  }
  if (options.reuse_address) sys::set_option(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  int bound = sys::bind(made.get(), generic(address), device::length_of(address));
  if (bound == -EADDRINUSE && !options.reuse_address) {
    sys::set_option(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    bound = sys::bind(made.get(), generic(address), device::length_of(address));
    sys::set_option(made.get(), SOL_SOCKET, SO_REUSEADDR, 0);
  }
  if (bound < 0) return -bound;
  // Where the caller has asked for any port, the kernel has chosen one.
  sys::local_address(made.get(), &address);
  socket = std::move(made);
  return 0;
}

// Connections inherit SO_REUSEADDR from the listening socket. Without it their TIME_WAIT would keep
// the next listener from the port.
int start_listening(int fd, int backlog) {
  sys::set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  return -sys::listen(fd, backlog);
}

std::vector<int> own_sockets(std::uint16_t tcp_port) {
  DIR* const list = opendir("/proc/self/fd");
  if (!list) return {};
  std::vector<int> found;
  while (const dirent* entry = readdir(list)) {
    const int fd = std::atoi(entry->d_name);  // 0 for "." and "..", as for standard input
    int protocol = 0;
    socklen_t bytes = sizeof protocol;
    sockaddr_storage local{};
    sockaddr_storage peer{};
    if (sys::get_option(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) < 0) continue;
    if (protocol != IPPROTO_TCP || sys::local_address(fd, &local) < 0) continue;
    if (device::port_of(local) != tcp_port || sys::peer_address(fd, &peer) >= 0) continue;
    if (std::ranges::find(found, fd) == found.end()) found.push_back(fd);
  }
  closedir(list);
  return found;
}

bool is_listening(int socket) {
  int listening = 0;
  socklen_t bytes = sizeof listening;
  return sys::get_option(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) >= 0 &&
         listening != 0;
}

bool listens_itself(std::uint16_t tcp_port) {
  return std::ranges::any_of(own_sockets(tcp_port), is_listening);
}

}  // namespace weft::cm
