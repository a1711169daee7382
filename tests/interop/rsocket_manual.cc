// Checks the result of each call against rsocket(7), in one process that does not use Weft's own
// interfaces. Exits at the first unexpected result and prints it.

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "interop/need.h"
#include "interop/rsocket_pair.h"

namespace {

void makes_and_refuses() {
  NEED_ERROR(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
  NEED_ERROR(rsocket(AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
  NEED_ERROR(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
  char byte = 0;
  NEED_ERROR(rsend(0, &byte, 1, 0), EBADF);
  NEED_ERROR(rclose(-1), EBADF);
  const int socket = rsocket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
  NEED(socket >= 0);
  NEED((rfcntl(socket, F_GETFL) & O_NONBLOCK) != 0);
  NEED(rfcntl(socket, F_SETFL, 0) == 0);
  NEED((rfcntl(socket, F_GETFL) & O_NONBLOCK) == 0);
  NEED_ERROR(rsend(socket, &byte, 1, 0), ENOTCONN);
  NEED_ERROR(rrecv(socket, &byte, 1, 0), ENOTCONN);
  NEED_ERROR(raccept(socket, nullptr, nullptr), EINVAL);
  NEED_ERROR(rshutdown(socket, SHUT_WR), ENOTCONN);
  sockaddr_in6 name{};
  socklen_t bytes = sizeof name;
  NEED_ERROR(rgetpeername(socket, reinterpret_cast<sockaddr*>(&name), &bytes), ENOTCONN);
  NEED(rgetsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes) == 0);
  NEED(name.sin6_family == AF_INET6 && name.sin6_port == 0);
  NEED(rclose(socket) == 0);
  NEED_ERROR(rclose(socket), EBADF);
}

void binds_and_connects() {
  sockaddr_in address{};
  const int listener = listening(address);
  const int second = rsocket(AF_INET, SOCK_STREAM, 0);
  NEED_ERROR(rbind(second, raw(address), sizeof address), EADDRINUSE);
  NEED_ERROR(rbind(second, raw(address), 3), EINVAL);
  NEED(rclose(listener) == 0);
  NEED_ERROR(rconnect(second, raw(address), sizeof address), ECONNREFUSED);
  NEED(rclose(second) == 0);
}

void connects_without_waiting() {
  sockaddr_in address{};
  const int listener = listening(address);
  NEED(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0);
  NEED_ERROR(raccept(listener, nullptr, nullptr), EAGAIN);
  const int active = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EINPROGRESS);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EALREADY);
  NEED(poll_one(listener, POLLIN) == POLLIN);
  const int passive = raccept(listener, nullptr, nullptr);
  NEED(passive >= 0);
  NEED((rfcntl(passive, F_GETFL) & O_NONBLOCK) == 0);
  NEED(poll_one(active, POLLOUT) == POLLOUT);
  NEED(option(active, SOL_SOCKET, SO_ERROR) == 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EISCONN);
  for (const int socket : {active, passive, listener}) NEED(rclose(socket) == 0);

  const int lost = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  NEED_ERROR(rconnect(lost, raw(address), sizeof address), EINPROGRESS);
  NEED((poll_one(lost, POLLOUT) & (POLLOUT | POLLERR)) == (POLLOUT | POLLERR));
  NEED(option(lost, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
  NEED(option(lost, SOL_SOCKET, SO_ERROR) == 0);
  NEED(rclose(lost) == 0);
}

void transfers() {
  Pair pair;
  char got[16] = {};
  NEED(rsend(pair.active, "hello", 5, 0) == 5);
  NEED(rrecv(pair.passive, got, sizeof got, MSG_PEEK) == 5);
  sockaddr_in from{};
  auto* source = reinterpret_cast<sockaddr*>(&from);
  NEED_ERROR(rrecvfrom(pair.passive, got, sizeof got, 0, source, nullptr), EFAULT);
  NEED(rrecv(pair.passive, got, 2, 0) == 2 && std::memcmp(got, "he", 2) == 0);
  NEED(rread(pair.passive, got, sizeof got) == 3 && std::memcmp(got, "llo", 3) == 0);
  NEED_ERROR(rrecv(pair.passive, got, sizeof got, MSG_DONTWAIT), EAGAIN);
  NEED_ERROR(rrecv(pair.passive, got, sizeof got, MSG_OOB), EOPNOTSUPP);

  iovec out[2] = {{const_cast<char*>("ab"), 2}, {const_cast<char*>("cdef"), 4}};
  NEED(rwritev(pair.passive, out, 2) == 6);
  iovec in[2] = {{got, 5}, {got + 8, 8}};
  msghdr message{};
  message.msg_iov = in;
  message.msg_iovlen = 2;
  NEED(rrecvmsg(pair.active, &message, MSG_WAITALL | MSG_DONTWAIT) >= 0 || errno == EAGAIN);
  NEED_ERROR(rwritev(pair.passive, out, -1), EINVAL);
  sockaddr_in peer{};
  NEED_ERROR(rsendto(pair.active, "x", 1, 0, raw(peer), sizeof peer), EISCONN);

  auto all = std::async(std::launch::async, [&] {
    char six[6];
    return rrecv(pair.passive, six, sizeof six, MSG_WAITALL);
  });
  NEED(rsend(pair.active, "123", 3, 0) == 3);
  NEED(rwrite(pair.active, "456", 3) == 3);
  NEED(all.get() == 6);
}

void ends() {
  Pair pair;
  char byte = 0;
  NEED(rsend(pair.active, "z", 1, 0) == 1);
  NEED(rshutdown(pair.active, SHUT_WR) == 0);
  NEED_ERROR(rsend(pair.active, &byte, 1, 0), EPIPE);
  NEED(rrecv(pair.passive, &byte, 1, 0) == 1 && byte == 'z');
  for (int i = 0; i < 3; ++i) NEED(rrecv(pair.passive, &byte, 1, 0) == 0);
  NEED((poll_one(pair.passive, POLLIN) & POLLIN) != 0);
  NEED(rsend(pair.passive, "back", 4, 0) == 4);
  char got[4];
  NEED(rrecv(pair.active, got, sizeof got, MSG_WAITALL) == 4);
  NEED_ERROR(rshutdown(pair.active, 7), EINVAL);
  NEED(rshutdown(pair.active, SHUT_RD) == 0);
  NEED(rrecv(pair.active, &byte, 1, 0) == 0);
}

void loses_its_peer() {
  Pair pair;
  const linger at_once{1, 0};
  NEED(rsetsockopt(pair.active, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  NEED(rsend(pair.active, "rest", 4, 0) == 4);
  char got[4];
  NEED(rrecv(pair.passive, got, 1, 0) == 1);
  NEED(rclose(pair.active) == 0);
  pair.active = -1;
  NEED(rrecv(pair.passive, got, 4, MSG_WAITALL) == 3);
  NEED_ERROR(rrecv(pair.passive, got, 1, 0), ECONNRESET);
  NEED((poll_one(pair.passive, POLLIN | POLLOUT) & (POLLHUP | POLLERR)) == (POLLHUP | POLLERR));
  NEED_ERROR(rsend(pair.passive, got, 1, 0), ECONNRESET);
  NEED(option(pair.passive, SOL_SOCKET, SO_ERROR) == ECONNRESET);
}

void polls_and_selects() {
  Pair pair(1000);
  int pipe_ends[2];
  NEED(pipe(pipe_ends) == 0);
  NEED(poll_one(pair.active, POLLIN, 0) == 0);
  NEED(poll_one(pair.active, POLLIN | POLLOUT) == POLLOUT);
  NEED(poll_one(pair.active, POLLIN, 5) == 0);
  std::string much(5000, 'm');
  NEED(rsend(pair.active, much.data(), much.size(), MSG_DONTWAIT) == 1000);
  NEED_ERROR(rsend(pair.active, much.data(), much.size(), MSG_DONTWAIT), EAGAIN);
  NEED(poll_one(pair.active, POLLOUT, 0) == 0);

  // An rsocket and an ordinary descriptor in one poll: the first event of either ends it.
  pollfd both[2] = {{pair.active, POLLIN, 0}, {pipe_ends[0], POLLIN, 0}};
  auto waiting = std::async(std::launch::async, [&] { return rpoll(both, 2, -1); });
  NEED(write(pipe_ends[1], "x", 1) == 1);
  NEED(waiting.get() == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
  waiting = std::async(std::launch::async, [&] { return rpoll(both, 1, -1); });
  NEED(rsend(pair.passive, "y", 1, 0) == 1);
  NEED(waiting.get() == 1 && both[0].revents == POLLIN);

  fd_set readable;
  fd_set writable;
  FD_ZERO(&readable);
  FD_ZERO(&writable);
  for (const int fd : {pair.active, pair.passive, pipe_ends[0]}) FD_SET(fd, &readable);
  for (const int fd : {pair.active, pair.passive}) FD_SET(fd, &writable);
  const int most = std::max(std::max(pair.active, pair.passive), pipe_ends[0]) + 1;
  // What was sent above may still be on its way.
  NEED(poll_one(pair.passive, POLLIN) == POLLIN);
  NEED(poll_one(pair.passive, POLLOUT) == POLLOUT);
  timeval at_once{};
  NEED(rselect(most, &readable, &writable, nullptr, &at_once) == 4);
  NEED(FD_ISSET(pair.active, &readable) && FD_ISSET(pair.passive, &readable));
  NEED(FD_ISSET(pipe_ends[0], &readable) && FD_ISSET(pair.passive, &writable));
  NEED(!FD_ISSET(pair.active, &writable));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

void has_options() {
  const int socket = rsocket(AF_INET, SOCK_STREAM, 0);
  NEED(option(socket, SOL_SOCKET, SO_SNDBUF) == 1 << 17);
  NEED(option(socket, SOL_SOCKET, SO_RCVBUF) == 1 << 17);
  NEED(option(socket, SOL_RDMA, RDMA_SQSIZE) == 384);
  NEED(option(socket, SOL_RDMA, RDMA_RQSIZE) == 384);
  NEED(option(socket, SOL_RDMA, RDMA_INLINE) == 64);
  NEED(option(socket, SOL_RDMA, RDMA_IOMAPSIZE) == 0);
  NEED(option(socket, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  NEED(option(socket, IPPROTO_TCP, TCP_MAXSEG) > 0);
  const int names[][3] = {{SOL_SOCKET, SO_REUSEADDR, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
                          {SOL_SOCKET, SO_OOBINLINE, 1},  {SOL_SOCKET, SO_SNDBUF, 5000},
                          {IPPROTO_TCP, TCP_NODELAY, 1},  {IPPROTO_TCP, TCP_KEEPIDLE, 9},
                          {IPPROTO_IPV6, IPV6_V6ONLY, 1}, {SOL_RDMA, RDMA_RQSIZE, 100}};
  for (const auto& [level, name, value] : names) {
    NEED(rsetsockopt(socket, level, name, &value, sizeof value) == 0);
    NEED(option(socket, level, name) == value);
  }
  const int zero = 0;
  NEED_ERROR(rsetsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &zero, sizeof zero), EINVAL);
  NEED_ERROR(rsetsockopt(socket, SOL_SOCKET, SO_BROADCAST, &zero, sizeof zero), ENOTSUP);
  NEED_ERROR(rsetsockopt(socket, SOL_SOCKET, SO_SNDBUF, &zero, 1), EINVAL);
  NEED(rclose(socket) == 0);
  Pair pair;
  NEED_ERROR(rsetsockopt(pair.active, SOL_SOCKET, SO_RCVBUF, &zero, sizeof zero), EISCONN);
}

void maps_buffers() {
  Pair pair(0, 4);
  char buffer[100] = {};
  NEED_ERROR(riomap(pair.passive, buffer, sizeof buffer, PROT_READ, 0, -1), EINVAL);
  const off_t offset = riomap(pair.passive, buffer, sizeof buffer, PROT_WRITE, 0, -1);
  NEED(offset >= 0);
  char byte = 0;
  NEED(rsend(pair.passive, "m", 1, 0) == 1 && rrecv(pair.active, &byte, 1, 0) == 1);
  NEED(riowrite(pair.active, "direct", 6, offset + 10, 0) == 6);
  NEED_ERROR(static_cast<ssize_t>(riowrite(pair.active, "direct", 6, offset + 95, 0)), EFAULT);
  NEED(rsend(pair.active, "n", 1, 0) == 1 && rrecv(pair.passive, &byte, 1, 0) == 1);
  NEED(std::memcmp(buffer + 10, "direct", 6) == 0);
  NEED(riounmap(pair.passive, buffer, sizeof buffer) == 0);
  NEED_ERROR(riounmap(pair.passive, buffer, sizeof buffer), EINVAL);
  // For local use only.
  NEED(riomap(pair.active, buffer, sizeof buffer, PROT_NONE, 0, -1) >= 0);
  NEED(riounmap(pair.active, buffer, sizeof buffer) == 0);
  NEED_ERROR(riounmap(pair.active, buffer, sizeof buffer), EINVAL);
}

// accept(2) fails without a descriptor for the client, which is accepted later.
void accepts_without_descriptors() {
  sockaddr_in address{};
  const int listener = listening(address);
  const int active = rsocket(AF_INET, SOCK_STREAM, 0);
  for (const int socket : {listener, active}) NEED(rfcntl(socket, F_SETFL, O_NONBLOCK) == 0);
  NEED_ERROR(rconnect(active, raw(address), sizeof address), EINPROGRESS);
  NEED(poll_one(listener, POLLIN) == POLLIN);
  {
    const NoDescriptors none;
    NEED_ERROR(raccept(listener, nullptr, nullptr), EMFILE);
    NEED(poll_one(listener, POLLIN) == POLLIN);
  }
  const int passive = raccept(listener, nullptr, nullptr);
  NEED(passive >= 0);
  NEED(poll_one(active, POLLOUT) == POLLOUT);
  NEED(option(active, SOL_SOCKET, SO_ERROR) == 0);
  for (const int socket : {active, passive, listener}) NEED(rclose(socket) == 0);
}

// As select(2) for times, and for events that no set asks for.
void selects_as_linux() {
  Pair pair;
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pair.active, &set);
  timeval time{-1, 0};
  NEED_ERROR(rselect(pair.active + 1, &set, nullptr, nullptr, &time), EINVAL);
  time = {std::numeric_limits<time_t>::max(), 0};
  {
    Blocked<int> waiting([&] { return rselect(pair.active + 1, &set, nullptr, nullptr, &time); });
    NEED(rsend(pair.passive, "x", 1, 0) == 1);
    NEED(waiting.result() == 1 && FD_ISSET(pair.active, &set));
  }
  // A peer that is gone is no exceptional event.
  NEED(rclose(pair.passive) == 0);
  pair.passive = -1;
  NEED((poll_one(pair.active, POLLIN | POLLRDHUP) & POLLIN) != 0);
  const auto began = std::chrono::steady_clock::now();
  time = {0, 50'000};
  NEED(rselect(pair.active + 1, nullptr, nullptr, &set, &time) == 0);
  NEED(std::chrono::steady_clock::now() - began >= std::chrono::milliseconds(50));
  NEED(!FD_ISSET(pair.active, &set));
}

// A number that needs no room, and pieces that no buffer has.
void checks_lengths() {
  Pair pair;
  char byte = 0;
  iovec out[2] = {{&byte, std::numeric_limits<size_t>::max()}, {&byte, 2}};
  NEED_ERROR(rwritev(pair.active, out, 2), EINVAL);
  NEED_ERROR(rreadv(pair.active, out, 2), EINVAL);
  NEED(rsend(pair.active, &byte, 0, 0) == 0);
  // As TCP and librdmacm, a stream ignores the address of a message.
  sockaddr_in peer = loopback();
  out[0].iov_len = 1;
  msghdr message{};
  message.msg_name = &peer;
  message.msg_namelen = sizeof peer;
  message.msg_iov = out;
  message.msg_iovlen = 1;
  NEED(rsendmsg(pair.active, &message, 0) == 1);
  NEED(rshutdown(pair.active, SHUT_WR) == 0);
  NEED_ERROR(rsend(pair.active, &byte, 0, 0), EPIPE);
}

void limits_keepalive() {
  const int socket = rsocket(AF_INET, SOCK_STREAM, 0);
  const int names[][2] = {{TCP_KEEPIDLE, 32767}, {TCP_KEEPINTVL, 32767}, {TCP_KEEPCNT, 127}};
  for (const auto& [name, most] : names) {
    const int more = most + 1;
    NEED(rsetsockopt(socket, IPPROTO_TCP, name, &most, sizeof most) == 0);
    NEED_ERROR(rsetsockopt(socket, IPPROTO_TCP, name, &more, sizeof more), EINVAL);
    NEED(option(socket, IPPROTO_TCP, name) == most);
  }
  NEED(rclose(socket) == 0);
}

int bound_to_all(int family, int v6_only, std::uint16_t& port_be) {
  const int socket = rsocket(family, SOCK_STREAM, 0);
  NEED(socket >= 0);
  if (family == AF_INET6) {
    NEED(rsetsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only) == 0);
  }
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = port_be;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = port_be;
  const bool is_six = family == AF_INET6;
  const auto* const name =
      is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  const socklen_t size = is_six ? sizeof six : sizeof four;
  if (rbind(socket, name, size) != 0) {
    NEED(errno == EADDRINUSE || errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT);
    NEED(rclose(socket) == 0);
    return -1;
  }
  sockaddr_in6 bound{};
  socklen_t bytes = sizeof bound;
  NEED(rgetsockname(socket, reinterpret_cast<sockaddr*>(&bound), &bytes) == 0);
  NEED(bound.sin6_family == family && bytes == size);
  port_be = bound.sin6_port;  // at the same place for both families
  return socket;
}

// ipv6(7): unless it is for IPv6 only, a socket has the clients of IPv4 as well, under mapped
// names.
void names_clients_of_ipv4() {
  std::uint16_t port_be = 0;
  const int listener = bound_to_all(AF_INET6, 0, port_be);
  if (listener < 0) return;  // no IPv6 here
  NEED(rlisten(listener, -1) == 0);
  const int client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const sockaddr_in address = loopback(port_be);
  NEED_ERROR(rconnect(client, raw(address), sizeof address), EINPROGRESS);
  const auto is_mapped = [](const sockaddr_in6& name, socklen_t bytes) {
    return bytes == sizeof name && name.sin6_family == AF_INET6 && name.sin6_port != 0 &&
           IN6_IS_ADDR_V4MAPPED(&name.sin6_addr);
  };
  sockaddr_in6 peer{};
  auto* const name = reinterpret_cast<sockaddr*>(&peer);
  socklen_t bytes = sizeof peer;
  const int passive = raccept(listener, name, &bytes);
  NEED(passive >= 0 && is_mapped(peer, bytes));
  NEED(rgetpeername(passive, name, &bytes) == 0 && is_mapped(peer, bytes));
  NEED(rgetsockname(passive, name, &bytes) == 0 && is_mapped(peer, bytes));
  // Such a name can be connected to.
  peer.sin6_port = port_be;
  const int second = rsocket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
  NEED_ERROR(rconnect(second, name, sizeof peer), EINPROGRESS);
  const int accepted = raccept(listener, nullptr, nullptr);
  NEED(accepted >= 0);
  NEED(rgetpeername(accepted, name, &bytes) == 0 && is_mapped(peer, bytes));
  for (const int each : {client, passive, second, accepted, listener}) NEED(rclose(each) == 0);
}

void can_be_for_ipv6_only() {
  std::uint16_t port_be = 0;
  const int six = bound_to_all(AF_INET6, 1, port_be);
  if (six < 0) return;  // no IPv6 here
  const int four = bound_to_all(AF_INET, 0, port_be);
  NEED(four >= 0);
  NEED(rclose(four) == 0 && rclose(six) == 0);
}

}  // namespace

int main() {
  makes_and_refuses();
  binds_and_connects();
  connects_without_waiting();
  transfers();
  ends();
  loses_its_peer();
  polls_and_selects();
  has_options();
  maps_buffers();
  accepts_without_descriptors();
  selects_as_linux();
  checks_lengths();
  limits_keepalive();
  names_clients_of_ipv4();
  can_be_for_ipv6_only();
  std::printf("all as rsocket(7) has it\n");
}
