#include "device/datagram/datagram_socket.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "device/addresses.h"
#include "device/datagram/datagrams.h"
#include "device/limits.h"

// Missing in older headers; in the kernel since 5.0.
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

namespace weft::device {
namespace {

// Sets don't-fragment (RFC 8085 §3.2) on everything that is sent, because the ICRC relies on it: an
// unconnected socket then uses IP identification 0.
int prepare(int fd, const DatagramSocket::Plan& plan) {
  // Every process of a host opens the port of the groups. With this option the kernel gives each of
  // them a copy of a multicast packet.
  if (plan.shared) sys::set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  // Linux before 5.7 allows it with CAP_NET_RAW only.
  if (plan.interface_index != 0) {
    sys::set_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(plan.interface_index));
  }
  // The kernel grants less where net.core.rmem_max is smaller, which is no error.
  sys::set_option(fd, SOL_SOCKET, SO_RCVBUF, limits::datagram_buffer_bytes);
  sys::set_option(fd, SOL_SOCKET, SO_SNDBUF, limits::datagram_buffer_bytes);
  if (plan.address.ss_family == AF_INET) {
    sys::set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    sys::set_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
    sys::set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
    sys::set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);  // only what this socket has joined
    return sys::set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
  }
  sys::set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, plan.both_families ? 0 : 1);
  sys::set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  sys::set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
  sys::set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
#ifdef IPV6_MULTICAST_ALL
  sys::set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
#endif
  return sys::set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
}

}  // namespace

DatagramSocket::DatagramSocket(Engine& engine, const Plan& plan, const sockaddr_storage& address,
                               sys::Descriptor fd)
    : engine_(engine),
      address_(address),
      arrived_(plan.arrived),
      fd_(std::move(fd)),
      link_out_(plan.link ? std::make_unique<DatagramLink>(*plan.link) : nullptr),
      link_in_(plan.link ? std::make_unique<DatagramLink>(*plan.link) : nullptr) {}

// The address is read back after bind(2), because port 0 selects a free port.
int DatagramSocket::open(Engine& engine, const Plan& plan, std::shared_ptr<DatagramSocket>& made) {
  sys::Descriptor fd(
      sys::socket(plan.address.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return -fd.release();
  if (const int failed = prepare(fd.get(), plan)) return -failed;
  sockaddr_storage address = plan.address;
  const int failed =
      sys::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length_of(address));
  if (failed != 0) return -failed;
  sys::local_address(fd.get(), &address);
  std::shared_ptr<DatagramSocket> opened(new DatagramSocket(engine, plan, address, std::move(fd)));
  opened->token_ = engine.watch(opened->fd_.get(), EPOLLIN, opened);
  if (opened->token_ == 0) return ENOMEM;
  made = std::move(opened);
  made->opened_.store(true, std::memory_order_release);
  return 0;
}

bool DatagramSocket::send(const DatagramRoute& route, unsigned interface_index, Bytes packet) {
  DatagramRoute given = route;
  const OutgoingDatagram one{&given, interface_index, packet};
  return send({&one, 1}) == 1;
}

// A link takes each packet; what it does not carry is lost, as on a network.
std::size_t DatagramSocket::send(std::span<const OutgoingDatagram> datagrams) {
  if (!link_out_) [[likely]]
    return send_now(datagrams);
  for (const OutgoingDatagram& one : datagrams) {
    const auto due_ns = link_out_->add(*one.route, one.interface_index, one.packet, sys::now_ns());
    if (due_ns) engine_.call_at(*due_ns, shared_from_this());
  }
  return datagrams.size();
}

// -EAGAIN and -ENOBUFS mean a full buffer. sendmmsg(2) reports an error only of its first packet,
// so that what was sent before one that fails is known.
std::size_t DatagramSocket::send_now(std::span<const OutgoingDatagram> datagrams) {
  std::size_t done = 0;
  while (done < datagrams.size()) {
    const int sent = send_datagrams(fd_.get(), datagrams.subspan(done));
    if (sent == -EINTR) continue;
    if (sent == -EAGAIN || sent == -ENOBUFS) break;
    // Every other error loses the datagram, as a network may: UD reports nothing of the kind.
    done += sent > 0 ? static_cast<std::size_t>(sent) : 1;
  }
  return done;
}

// EPOLLOUT is watched only while a queue pair waits: a writable socket would wake the progress
// thread all the time.
void DatagramSocket::await_room(std::weak_ptr<DatagramReceiver> waiting) {
  // Both steps hold the lock. Otherwise room_available() could take the entry before EPOLLOUT is
  // asked for, and nothing would ever ask for EPOLLIN alone again.
  const std::lock_guard lock(waiting_mutex_);
  waiting_.push_back(std::move(waiting));
  engine_.change(token_, EPOLLIN | EPOLLOUT);
}

// Each waiter sends what it has; one that finds no room again registers anew.
void DatagramSocket::room_available() {
  std::vector<std::weak_ptr<DatagramReceiver>> waiting;
  {
    const std::lock_guard lock(waiting_mutex_);
    if (waiting_.empty()) return;
    waiting.swap(waiting_);
    engine_.change(token_, EPOLLIN);
  }
  for (const auto& one : waiting) {
    if (const auto receiver = one.lock()) receiver->datagram_room();
  }
}

// A packet may be there before open() is done, and what it is delivered to sends by `made`. It
// stays in the socket, so that it is reported again.
void DatagramSocket::on_ready(std::uint32_t events) {
  if (!opened_.load(std::memory_order_acquire)) return sys::yield();
  if (events & EPOLLOUT) room_available();
  const std::lock_guard lock(receiving_);
  receive_available();
}

void DatagramSocket::on_deadline() {
  if (!link_out_) return;
  send_delayed(sys::now_ns());
  const std::lock_guard lock(receiving_);
  deliver_late();
}

// A full socket loses packets here: their requests have completed.
void DatagramSocket::send_delayed(std::uint64_t now_ns) {
  if (!link_out_) return;
  while (const auto packet = link_out_->take(now_ns)) {
    DatagramRoute route = packet->route;
    const OutgoingDatagram one{&route, packet->interface_index, packet->bytes};
    (void)send_now({&one, 1});
  }
}

void DatagramSocket::deliver_late() {
  const std::uint64_t now_ns = sys::now_ns();
  while (const auto packet = link_in_->take(now_ns)) arrived_(packet->route, packet->bytes);
}

// With receiving_ held.
void DatagramSocket::deliver(const DatagramRoute& route, Bytes packet) {
  if (!link_in_) [[likely]]
    return arrived_(route, packet);
  const auto due_ns = link_in_->add(route, 0, packet, sys::now_ns());
  if (due_ns) engine_.call_at(*due_ns, shared_from_this());
}

// Limits the packets per turn, so that one busy socket does not block the others. A call that has
// found fewer than it asked for has emptied the socket.
void DatagramSocket::receive_available() {
  for (std::size_t left{limits::datagrams_per_turn}; left > 0;) {
    const std::size_t asked = std::min(left, most_datagrams_of_a_call);
    const std::size_t got = receive_some(asked);
    if (got < asked) break;
    left -= got;
  }
  if (link_in_) [[unlikely]]
    deliver_late();
}

// With `receiving_` held: the packets are in the one buffer of this socket until they are
// delivered.
std::size_t DatagramSocket::receive_some(std::size_t most) {
  int got = -EINTR;
  while (got == -EINTR) got = inbound_.receive(fd_.get(), most);
  const auto count = static_cast<std::size_t>(std::max(got, 0));
  for (std::size_t i = 0; i < count; ++i) deliver(inbound_.route(i, address_), inbound_.packet(i));
  return count;
}

int DatagramSocket::join(const sockaddr_storage& group, unsigned interface_index) {
  return change_membership(IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, group, interface_index);
}

void DatagramSocket::leave(const sockaddr_storage& group, unsigned interface_index) {
  change_membership(IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP, group, interface_index);
}

int DatagramSocket::change_membership(int ipv4_option, int ipv6_option,
                                      const sockaddr_storage& group, unsigned interface_index) {
  if (address_.ss_family == AF_INET) {
    ip_mreqn request{};
    request.imr_multiaddr = reinterpret_cast<const sockaddr_in&>(group).sin_addr;
    request.imr_ifindex = static_cast<int>(interface_index);
    return -sys::set_option(fd_.get(), IPPROTO_IP, ipv4_option, &request, sizeof request);
  }
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = reinterpret_cast<const sockaddr_in6&>(group).sin6_addr;
  request.ipv6mr_interface = interface_index;
  return -sys::set_option(fd_.get(), IPPROTO_IPV6, ipv6_option, &request, sizeof request);
}

// Unwatching first guarantees that the engine starts no new call; the lock waits for one in
// progress.
void DatagramSocket::close() {
  engine_.unwatch(token_);
  const std::lock_guard lock(receiving_);
  fd_.reset();
}

// The engine has closed the descriptor already; its number may be in use for another file.
void DatagramSocket::abandon_after_fork() {
  (void)fd_.release();
}

}  // namespace weft::device
