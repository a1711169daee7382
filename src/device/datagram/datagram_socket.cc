#include "device/datagram/datagram_socket.h"

#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "device/addresses.h"
#include "device/datagram/datagrams.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// Room for the ancillary data of a datagram: addresses, type of service, time to live.
constexpr std::size_t ancillary_bytes = 128;
using Ancillary = std::array<std::byte, ancillary_bytes>;

// The socket options of both families for the same ancillary data.
struct Names {
  int level;
  int packet_info;
  int hop_limit;
  int traffic_class;
};
constexpr Names ipv4_names{IPPROTO_IP, IP_PKTINFO, IP_TTL, IP_TOS};
constexpr Names ipv6_names{IPPROTO_IPV6, IPV6_PKTINFO, IPV6_HOPLIMIT, IPV6_TCLASS};

const Names& names_of(int family) {
  return family == AF_INET ? ipv4_names : ipv6_names;
}

// Sets don't-fragment (RFC 8085 §3.2) on everything that is sent, because the ICRC relies on it: an
// unconnected socket then uses IP identification 0.
int prepare(int fd, const DatagramSocket::Plan& plan) {
  // Every process of a host opens the port of the groups. With this option the kernel gives each of
  // them a copy of a multicast packet.
  if (plan.shared) sys::set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
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

// The destination of the packet is part of its GRH, and of the ICRC; a socket that is bound to all
// addresses learns it only here.
void set_local_address(const cmsghdr& entry, sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    in_pktinfo info;
    std::memcpy(&info, CMSG_DATA(&entry), sizeof info);
    reinterpret_cast<sockaddr_in&>(address).sin_addr = info.ipi_addr;
  } else {
    in6_pktinfo info;
    std::memcpy(&info, CMSG_DATA(&entry), sizeof info);
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = info.ipi6_addr;
  }
}

// The kernel delivers IPv4's type of service as one byte and all other values as an int.
std::uint8_t small_number(const cmsghdr& entry) {
  if (entry.cmsg_len == CMSG_LEN(1)) return *CMSG_DATA(&entry);
  int value = 0;
  std::memcpy(&value, CMSG_DATA(&entry), sizeof value);
  return static_cast<std::uint8_t>(value);
}

// Replaces the route's defaults by what the packet's headers contain.
void read_ancillary(msghdr& message, DatagramRoute& route) {
  const Names& names = names_of(route.destination.ss_family);
  for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry; entry = CMSG_NXTHDR(&message, entry)) {
    if (entry->cmsg_level != names.level) continue;
    if (entry->cmsg_type == names.packet_info) set_local_address(*entry, route.destination);
    if (entry->cmsg_type == names.hop_limit) route.hop_limit = small_number(*entry);
    if (entry->cmsg_type == names.traffic_class) route.traffic_class = small_number(*entry);
  }
}

// Appends ancillary data to an outgoing message.
class AncillaryWriter {
 public:
  AncillaryWriter(msghdr& message, Ancillary& room) : message_(message) {
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    next_ = CMSG_FIRSTHDR(&message);
  }
  template <typename T>
  void add(int level, int type, const T& value) {
    next_->cmsg_level = level;
    next_->cmsg_type = type;
    next_->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(next_), &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
    next_ = CMSG_NXTHDR(&message_, next_);
  }
  void finish() { message_.msg_controllen = used_; }

 private:
  msghdr& message_;
  cmsghdr* next_;
  std::size_t used_ = 0;
};

void write_ancillary(msghdr& message, Ancillary& room, const DatagramRoute& route,
                     unsigned interface_index) {
  const Names& names = names_of(route.destination.ss_family);
  AncillaryWriter writer(message, room);
  if (route.destination.ss_family == AF_INET) {
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<int>(interface_index);
    // The source address of the packet: the ICRC covers it, so the kernel must not choose another
    // one.
    info.ipi_spec_dst = reinterpret_cast<const sockaddr_in&>(route.source).sin_addr;
    writer.add(names.level, names.packet_info, info);
  } else {
    in6_pktinfo info{};
    info.ipi6_ifindex = interface_index;
    info.ipi6_addr = reinterpret_cast<const sockaddr_in6&>(route.source).sin6_addr;
    writer.add(names.level, names.packet_info, info);
  }
  // For each packet, because address handles may differ in both values.
  writer.add(names.level, names.hop_limit, int{route.hop_limit});
  writer.add(names.level, names.traffic_class, int{route.traffic_class});
  writer.finish();
}

}  // namespace

// One buffer for all packets: each is delivered before the next one is read.
DatagramSocket::DatagramSocket(Engine& engine, const Plan& plan, const sockaddr_storage& address,
                               sys::Descriptor fd)
    : engine_(engine),
      address_(address),
      arrived_(plan.arrived),
      fd_(std::move(fd)),
      link_out_(plan.link ? std::make_unique<DatagramLink>(*plan.link) : nullptr),
      link_in_(plan.link ? std::make_unique<DatagramLink>(*plan.link) : nullptr),
      // One byte more than the largest packet, to detect larger ones.
      buffer_(datagram_packet_bytes(limits::max_datagram_bytes) + 1) {}

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
  return 0;
}

// A link takes each packet; what it does not carry is lost, as on a network.
bool DatagramSocket::send(const DatagramRoute& route, unsigned interface_index, Bytes packet) {
  if (!link_out_) [[likely]]
    return send_now(route, interface_index, packet);
  const auto due_ns = link_out_->add(route, interface_index, packet, sys::now_ns());
  if (due_ns) engine_.call_at(*due_ns, shared_from_this());
  return true;
}

// The interface is given for groups only; for other destinations the routing table selects it.
// -EAGAIN and -ENOBUFS mean a full buffer.
bool DatagramSocket::send_now(const DatagramRoute& route, unsigned interface_index, Bytes packet) {
  iovec piece{const_cast<std::byte*>(packet.data()), packet.size()};
  sockaddr_storage destination = route.destination;
  set_scope(destination, interface_index);
  msghdr message{};
  message.msg_name = &destination;
  message.msg_namelen = length_of(destination);
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) Ancillary room{};
  const bool bound_to_interface = is_multicast(gid_of(destination));
  write_ancillary(message, room, route, bound_to_interface ? interface_index : 0);
  while (true) {
    const auto sent = sys::send_message(fd_.get(), message);
    // Every other error loses the datagram, as a network may: UD reports nothing of the kind.
    if (sent != -EINTR) return sent != -EAGAIN && sent != -ENOBUFS;
  }
}

// EPOLLOUT is watched only while a queue pair waits: a writable socket would wake the progress
// thread all the time.
void DatagramSocket::await_room(std::weak_ptr<DatagramReceiver> waiting) {
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(std::move(waiting));
  }
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

void DatagramSocket::on_ready(std::uint32_t events) {
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
    (void)send_now(packet->route, packet->interface_index, packet->bytes);
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

// Limits the packets per call, so that one busy socket does not block the others.
void DatagramSocket::receive_available() {
  for (int i = 0; i < limits::datagrams_per_turn; ++i) {
    if (!receive_one()) break;
  }
  if (link_in_) [[unlikely]]
    deliver_late();
}

// Receives one packet; false if none is available.
bool DatagramSocket::receive_one() {
  DatagramRoute route;
  iovec piece{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) Ancillary room;
  msghdr message{};
  message.msg_name = &route.source;
  message.msg_namelen = sizeof route.source;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  const auto got = sys::receive_message(fd_.get(), message);
  if (got == -EINTR) return true;
  if (got < 0) return false;
  route.destination = address_;
  read_ancillary(message, route);
  // With `receiving_` held: the packet is in the one buffer of this socket until it is delivered.
  deliver(route, Bytes(buffer_).first(static_cast<std::size_t>(got)));
  return true;
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
