#include "device/datagram/datagram_batch.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/uninitialized.h"
#include "device/addresses.h"
#include "device/system.h"
#include "device/system_messages.h"

namespace weft::device {
namespace {

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

// What write_ancillary() needs at most.
constexpr std::size_t sending_ancillary_bytes =
    CMSG_SPACE(sizeof(in6_pktinfo)) + 2 * CMSG_SPACE(sizeof(int));

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
  AncillaryWriter(msghdr& message, std::span<std::byte> room) : message_(message) {
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

void write_ancillary(msghdr& message, std::span<std::byte> room, const DatagramRoute& route,
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

// What the kernel reads of a packet that is sent.
struct Sending {
  iovec piece;
  alignas(cmsghdr) std::array<std::byte, sending_ancillary_bytes> ancillary;
};

// The interface is given for groups only; for other destinations the routing table selects it.
void describe(const OutgoingDatagram& datagram, Sending& room, msghdr& message) {
  DatagramRoute& route = *datagram.route;
  set_scope(route.destination, datagram.interface_index);
  room.piece = {const_cast<std::byte*>(datagram.packet.data()), datagram.packet.size()};
  room.ancillary = {};  // CMSG_NXTHDR() reads the length that follows
  message = {};
  message.msg_name = &route.destination;
  message.msg_namelen = length_of(route.destination);
  message.msg_iov = &room.piece;
  message.msg_iovlen = 1;
  const bool bound_to_interface = is_multicast(gid_of(route.destination));
  write_ancillary(message, room.ancillary, route,
                  bound_to_interface ? datagram.interface_index : 0);
}

}  // namespace

// One packet alone costs a little less by sendmsg(2).
int send_datagrams(int fd, std::span<const OutgoingDatagram> datagrams) {
  Uninitialized<Sending, most_datagrams_of_a_call> rooms;
  Uninitialized<mmsghdr, most_datagrams_of_a_call> headers;
  const std::size_t count = std::min(datagrams.size(), most_datagrams_of_a_call);
  const std::span<mmsghdr> messages = headers.all().first(count);
  for (std::size_t i = 0; i < count; ++i) {
    describe(datagrams[i], rooms.all()[i], messages[i].msg_hdr);
  }
  if (count != 1) return sys::send_messages(fd, messages);
  const auto sent = sys::send_message(fd, messages[0].msg_hdr);
  return sent < 0 ? static_cast<int>(sent) : 1;
}

InboundDatagrams::InboundDatagrams()
    : bytes_(std::make_unique_for_overwrite<std::byte[]>(most_datagrams_of_a_call * packet_room)),
      entries_(most_datagrams_of_a_call),
      messages_(most_datagrams_of_a_call) {
  for (std::size_t i = 0; i < entries_.size(); ++i) prepare(i);
}

void InboundDatagrams::prepare(std::size_t index) {
  Entry& entry = entries_[index];
  entry.piece = {bytes_.get() + index * packet_room, packet_room};
  msghdr& message = messages_[index].msg_hdr;
  message = {};
  message.msg_name = &entry.source;
  message.msg_namelen = sizeof entry.source;
  message.msg_iov = &entry.piece;
  message.msg_iovlen = 1;
  message.msg_control = entry.ancillary.data();
  message.msg_controllen = entry.ancillary.size();
}

int InboundDatagrams::receive(int fd, std::size_t most) {
  for (std::size_t i = 0; i < used_; ++i) prepare(i);
  used_ = 0;
  const int got = sys::receive_messages(
      fd, std::span(messages_).first(std::min(most, most_datagrams_of_a_call)));
  if (got > 0) used_ = static_cast<std::size_t>(got);
  return got;
}

DatagramRoute InboundDatagrams::route(std::size_t index, const sockaddr_storage& local) {
  DatagramRoute route;
  route.source = entries_[index].source;
  route.destination = local;
  read_ancillary(messages_[index].msg_hdr, route);
  return route;
}

Bytes InboundDatagrams::packet(std::size_t index) const {
  const std::size_t bytes = std::min<std::size_t>(messages_[index].msg_len, packet_room);
  return {bytes_.get() + index * packet_room, bytes};
}

}  // namespace weft::device
