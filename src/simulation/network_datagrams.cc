// UDP sockets: how a packet leaves, travels and arrives.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "simulation/network.h"
#include "simulation/places.h"

namespace weft::simulation {
namespace {

// Copies a value out of ancillary data, where it need not be aligned.
template <typename Value>
Value value_of(const cmsghdr& entry) {
  Value value{};
  std::memcpy(&value, CMSG_DATA(&entry), sizeof value);
  return value;
}

// Takes what the sender has chosen for this packet, as ip(7) has it.
void read_ancillary(const msghdr& message, Packet& packet) {
  auto& headers = const_cast<msghdr&>(message);  // CMSG_NXTHDR(3) has no version for const
  for (cmsghdr* entry = CMSG_FIRSTHDR(&headers); entry; entry = CMSG_NXTHDR(&headers, entry)) {
    if (entry->cmsg_level != IPPROTO_IP) continue;
    if (entry->cmsg_type == IP_PKTINFO) {
      const std::uint32_t source = ntohl(value_of<in_pktinfo>(*entry).ipi_spec_dst.s_addr);
      if (source != 0) packet.from.address = source;
    }
    if (entry->cmsg_type == IP_TTL) packet.time_to_live = value_of<int>(*entry);
    if (entry->cmsg_type == IP_TOS) {
      packet.type_of_service = static_cast<std::uint8_t>(value_of<int>(*entry));
    }
  }
}

template <typename Value>
void append(msghdr& message, std::size_t& used, int type, const Value& value) {
  if (used + CMSG_SPACE(sizeof value) > message.msg_controllen) return;
  auto* const entry = reinterpret_cast<cmsghdr*>(static_cast<char*>(message.msg_control) + used);
  entry->cmsg_level = IPPROTO_IP;
  entry->cmsg_type = type;
  entry->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(entry), &value, sizeof value);
  used += CMSG_SPACE(sizeof value);
}

void write_ancillary(msghdr& message, const Packet& packet) {
  std::size_t used = 0;
  in_pktinfo info{};
  info.ipi_addr.s_addr = htonl(packet.to.address);
  info.ipi_ifindex = 1;
  append(message, used, IP_PKTINFO, info);
  append(message, used, IP_TTL, packet.time_to_live);
  append(message, used, IP_TOS, packet.type_of_service);
  message.msg_controllen = used;
}

// Returns what fits, as recvmsg(2).
std::size_t copy_out(const Packet& packet, msghdr& message) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < message.msg_iovlen && done < packet.bytes.size(); ++i) {
    const iovec& piece = message.msg_iov[i];
    const std::size_t part = std::min(piece.iov_len, packet.bytes.size() - done);
    std::memcpy(piece.iov_base, packet.bytes.data() + done, part);
    done += part;
  }
  message.msg_flags = done < packet.bytes.size() ? MSG_TRUNC : 0;
  return done;
}

std::vector<std::byte> joined(const msghdr& message) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* const first = static_cast<const std::byte*>(message.msg_iov[i].iov_base);
    bytes.insert(bytes.end(), first, first + message.msg_iov[i].iov_len);
  }
  return bytes;
}

}  // namespace

// A packet for a group reaches each host, whose sockets then choose.
std::ptrdiff_t Network::send_message(int fd, const msghdr& message) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (!socket->inbox || !message.msg_name) return -EOPNOTSUPP;
  Packet packet{.from = socket->local,
                .to = place_of(static_cast<const sockaddr*>(message.msg_name)),
                .bytes = joined(message)};
  read_ancillary(message, packet);
  const auto sent = static_cast<std::ptrdiff_t>(packet.bytes.size());
  if (!socket->process || socket->dead()) return sent;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (!is_group(packet.to.address) && hosts_[host] != packet.to.address) continue;
    send_packet(*socket, host, packet);
  }
  return sent;
}

void Network::send_packet(Socket& socket, std::size_t host, const Packet& packet) {
  socket.link = &links_.between(socket.process->host, host);
  const Time due = delayed(socket, packet.bytes.size());
  if (due == never || is_lost(*socket.link)) return;
  schedule_.add({due, Event::Kind::datagram, flights_.add(packet, host, *socket.link)});
}

void Network::deliver(std::uint64_t flight) {
  const auto [packet, host] = flights_.take(flight);
  // A copy, because none of this may depend on what an event does.
  for (const auto& socket : std::vector(sockets_)) {
    if (!socket || !accepts(*socket, packet, host)) continue;
    socket->inbox->arrived.push_back(packet);
    expect_readable(*socket, schedule_.now());
    // As the kernel: a packet for one host reaches one socket.
    if (!is_group(packet.to.address)) return;
  }
}

bool Network::accepts(const Socket& socket, const Packet& packet, std::size_t host) {
  if (!socket.inbox || socket.local.port != packet.to.port) return false;
  if (!socket.process || socket.dead() || socket.process->host != host) return false;
  if (is_group(packet.to.address)) return socket.inbox->groups.contains(packet.to.address);
  return socket.local.address == 0 || socket.local.address == packet.to.address;
}

std::ptrdiff_t Network::receive_message(int fd, msghdr& message) {
  Socket* const socket = find(fd);
  if (!socket) return -EBADF;
  if (!socket->inbox) return -EOPNOTSUPP;
  if (socket->dead() || socket->inbox->arrived.empty()) return -EAGAIN;
  const Packet packet = std::move(socket->inbox->arrived.front());
  socket->inbox->arrived.pop_front();
  if (message.msg_name) put(*static_cast<sockaddr_storage*>(message.msg_name), packet.from);
  write_ancillary(message, packet);
  return static_cast<std::ptrdiff_t>(copy_out(packet, message));
}

// IP_ADD_MEMBERSHIP and IP_DROP_MEMBERSHIP. 0 or -errno.
int Network::change_membership(Socket& socket, bool join, const ip_mreqn& request) {
  const std::uint32_t group = ntohl(request.imr_multiaddr.s_addr);
  if (!socket.inbox || !is_group(group)) return -EINVAL;
  if (join) return socket.inbox->groups.insert(group).second ? 0 : -EADDRINUSE;
  return socket.inbox->groups.erase(group) > 0 ? 0 : -EADDRNOTAVAIL;
}

}  // namespace weft::simulation
