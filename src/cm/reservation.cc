#include "cm/reservation.h"

#include <netinet/in.h>

#include <cerrno>

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

// Connects a datagram socket, which sends nothing but consults the routing table.
int choose_source(const sockaddr_storage& destination, sockaddr_storage& source) {
  sys::Descriptor probe(sys::socket(destination.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return -probe.release();
  if (source.ss_family != AF_UNSPEC) {
    sockaddr_storage from = source;
    device::set_port(from, 0);
    const int bound = sys::bind(probe.get(), generic(from), device::length_of(from));
    if (bound < 0) return -bound;
  }
  sockaddr_storage to = destination;
  constexpr std::uint16_t any_port = 9;  // discard: any port will do, except 0, which is refused
  device::set_port(to, any_port);
  const int connected = sys::connect(probe.get(), generic(to), device::length_of(to));
  if (connected < 0) return -connected;
  sys::local_address(probe.get(), &source);
  device::set_port(source, 0);
  return 0;
}

}  // namespace weft::cm
