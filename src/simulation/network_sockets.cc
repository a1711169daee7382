// The calls of sockets, as the kernel has them.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "simulation/network.h"
#include "simulation/places.h"

namespace weft::simulation {
namespace {

// Of Ethernet with 1500 bytes, IPv4 and TCP without options.
constexpr int segment_bytes = 1460;
constexpr std::uint16_t first_free_port = 49152;  // IANA's dynamic ports
constexpr int type_mask = 0xF;                    // without SOCK_NONBLOCK and SOCK_CLOEXEC

bool is_loopback(std::uint32_t address) {
  return address >> 24U == 127;
}

// Copies as much as the caller has room for, as getsockopt(2).
template <typename Value>
int answer(const Value& known, void* value, socklen_t* bytes) {
  *bytes = std::min<socklen_t>(*bytes, sizeof known);
  std::memcpy(value, &known, *bytes);
  return 0;
}

}  // namespace

Socket* Network::find(int fd) const {
  const auto at = static_cast<std::size_t>(fd - first_fd_);
  return fd >= first_fd_ && at < sockets_.size() ? sockets_[at].get() : nullptr;
}

std::shared_ptr<Socket> Network::share(int fd) const {
  return find(fd) ? sockets_[static_cast<std::size_t>(fd - first_fd_)] : nullptr;
}

std::shared_ptr<Socket> Network::make_socket() {
  auto made = std::make_shared<Socket>();
  made->fd = first_fd_ + static_cast<int>(sockets_.size());
  made->process = current_process();
  sockets_.push_back(made);
  return made;
}

int Network::socket(int family, int type) {
  if (family != AF_INET) return -EAFNOSUPPORT;
  const int wanted = type & type_mask;
  if (wanted != SOCK_STREAM && wanted != SOCK_DGRAM) return -EPROTONOSUPPORT;
  const auto made = make_socket();
  if (wanted == SOCK_DGRAM) made->inbox = std::make_unique<Inbox>();
  return made->fd;
}

std::optional<std::size_t> Network::host_of(const Socket& socket) const {
  if (socket.process) return socket.process->host;
  return host_at(socket.local.address);
}

// Loopback addresses are those of the same host.
std::optional<std::size_t> Network::host_of(const Socket& from, std::uint32_t address) const {
  return is_loopback(address) ? host_of(from) : host_at(address);
}

// TCP and UDP have ports of their own. UDP sockets share one where all of them want that.
bool Network::is_taken(const Socket& by, const Place& place) const {
  if (place.port == 0) return false;
  const auto host = place.address == INADDR_ANY ? host_of(by) : host_of(by, place.address);
  if (!by.inbox) {
    return std::ranges::any_of(sockets_, [&](const auto& other) {
      if (!other || other->inbox || other->abandoned || other.get() == &by) return false;
      const bool holds =
          other->state == Socket::State::bound || other->state == Socket::State::listening;
      const bool overlaps = other->local.address == place.address ||
                            other->local.address == INADDR_ANY || place.address == INADDR_ANY;
      return holds && overlaps && other->local.port == place.port && host_of(*other) == host;
    });
  }
  return std::ranges::any_of(sockets_, [&](const auto& other) {
    return other && other->inbox && other->local == place && other.get() != &by &&
           place.address != 0 && !(by.inbox->shared && other->inbox->shared) &&
           host_of(*other) == host;
  });
}

std::uint16_t Network::free_port() {
  if (++last_port_ < first_free_port) last_port_ = first_free_port;
  return last_port_;
}

// A socket may be bound to all addresses of its host. Without a process, a socket of TCP is not
// known to belong to one: then loopback has no ports that can be found, only ends of connections to
// oneself.
int Network::bind(int fd, const sockaddr* address) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  Place place = place_of(address);
  const auto host = host_at(place.address);
  const auto& process = socket->process;
  bool own = host && (!process || *host == process->host);
  if (place.address == INADDR_ANY) own = socket->inbox || process;
  if (is_loopback(place.address)) own = process || place.port == 0;
  if (!own) return -EADDRNOTAVAIL;
  if (is_taken(*socket, place)) return -EADDRINUSE;
  if (place.port == 0) place.port = free_port();
  socket->local = place;
  socket->state = Socket::State::bound;
  return 0;
}

int Network::listen(int fd, int /*backlog*/) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  const auto host = host_of(*socket);
  if (!host) return -EADDRNOTAVAIL;
  if (!listeners_.emplace(std::pair(*host, socket->local), fd).second) return -EADDRINUSE;
  socket->state = Socket::State::listening;
  return 0;
}

int Network::accept(int fd, sockaddr_storage* address) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (socket->dead() || socket->backlog.empty()) return -EAGAIN;
  const auto accepted = socket->backlog.front();
  socket->backlog.pop_front();
  put(*address, accepted->peer);
  return accepted->fd;
}

int Network::connect(int fd, const sockaddr* address) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  socket->peer = place_of(address);
  if (socket->inbox) return choose_source(*socket);
  if (socket->state == Socket::State::made || socket->local.address == INADDR_ANY) {
    if (const int failed = choose_source(*socket)) return failed;
    if (socket->local.port == 0) socket->local.port = free_port();
  }
  if (socket->peer == socket->local) {
    connect_to_itself(*socket);
    return 0;
  }
  const auto from = host_of(*socket);
  const auto to = host_of(*socket, socket->peer.address);
  socket->state = Socket::State::connecting;
  socket->error = 0;
  // Without that host there is no answer, so that the caller's own timeout ends the attempt.
  if (!from || !to) return -EINPROGRESS;
  socket->link = &links_.between(*from, *to);
  const Time due = delayed(*socket, 0);
  if (due != never) schedule_.add({due, Event::Kind::syn, static_cast<std::uint64_t>(fd)});
  return -EINPROGRESS;
}

// As the routing table of a host with one interface.
int Network::choose_source(Socket& socket) {
  const auto host = host_of(socket);
  if (!host) return -EADDRNOTAVAIL;
  if (socket.local.address == INADDR_ANY) {
    socket.local.address = is_loopback(socket.peer.address) ? socket.peer.address : hosts_[*host];
  }
  return 0;
}

int Network::shutdown(int fd, int how) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (!socket->out) return -ENOTCONN;
  if (how != SHUT_RD && !socket->dead()) send_end(*socket);
  return 0;
}

int Network::close(int fd) {
  const std::shared_ptr<Socket> socket = share(fd);
  if (!socket) return -EBADF;
  if (!over_ && !socket->dead()) abandon(*socket);
  sockets_[static_cast<std::size_t>(fd - first_fd_)] = nullptr;
  return 0;
}

int Network::set_option(int fd, int level, int name, const void* value, socklen_t bytes) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_DROP_MEMBERSHIP)) {
    ip_mreqn request{};
    std::memcpy(&request, value, std::min<std::size_t>(bytes, sizeof request));
    return change_membership(*socket, name == IP_ADD_MEMBERSHIP, request);
  }
  if (level != SOL_SOCKET || bytes < sizeof(int)) return 0;
  int wanted_int = 0;
  std::memcpy(&wanted_int, value, sizeof wanted_int);
  if (name == SO_LINGER && bytes == sizeof(linger)) {
    linger wanted{};
    std::memcpy(&wanted, value, sizeof wanted);
    socket->ends_by_reset = wanted.l_onoff != 0 && wanted.l_linger == 0;
  }
  if (name == SO_KEEPALIVE) socket->keeps_alive = wanted_int != 0;
  if (name == SO_REUSEADDR && socket->inbox) socket->inbox->shared = wanted_int != 0;
  return 0;
}

namespace {

// What the device asks TCP for: which bytes have arrived, and whether the other host answers.
tcp_info info_of(const Socket& socket, Time now) {
  tcp_info info{};
  if (!socket.out) return info;
  const std::uint64_t arrived = socket.out->arrived(now);
  // Linux counts the SYN of the side that connected as a byte.
  info.tcpi_bytes_acked = arrived + (socket.initiated ? 1 : 0);
  if (!socket.link || !socket.link->cut) return info;
  constexpr Time ns_per_ms = 1'000'000;
  info.tcpi_last_ack_recv = static_cast<std::uint32_t>((now - socket.link->cut_since) / ns_per_ms);
  if (socket.out->sent() > arrived) info.tcpi_retransmits = 1;
  if (socket.keeps_alive) info.tcpi_probes = 2;
  return info;
}

}  // namespace

int Network::get_option(int fd, int level, int name, void* value, socklen_t* bytes) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    return answer(info_of(*socket, schedule_.now()), value, bytes);
  }
  if (level == IPPROTO_TCP && name == TCP_MAXSEG) return answer(segment_bytes, value, bytes);
  if (level == SOL_SOCKET && name == SO_ERROR) {
    return answer(std::exchange(socket->error, 0), value, bytes);
  }
  if (level == SOL_SOCKET && name == SO_ACCEPTCONN) {
    const int listens = socket->state == Socket::State::listening ? 1 : 0;
    return answer(listens, value, bytes);
  }
  return -ENOPROTOOPT;
}

int Network::local_address(int fd, sockaddr_storage* address) {
  const Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  put(*address, socket->local);
  return 0;
}

int Network::peer_address(int fd, sockaddr_storage* address) {
  const Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (socket->state != Socket::State::connected) return -ENOTCONN;
  put(*address, socket->peer);
  return 0;
}

}  // namespace weft::simulation
