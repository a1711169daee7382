// Asks the kernel for the owner of the socket at the other end of a connection on this host:
// sock_diag(7).
#include "device/connect/peer_owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "device/addresses.h"
#include "device/system.h"

namespace weft::device {
namespace {

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

// IPv4 addresses in IPv6 form belong to sockets that the kernel lists under AF_INET6, if the socket
// is one of that family, so both are asked for: see owner_of_peer().
void set_end(std::uint32_t (&address)[4], std::uint16_t& port_be, const sockaddr_storage& end,
             int family) {
  port_be = htons(port_of(end));
  const ibv_gid gid = gid_of(end);
  if (family == AF_INET6) {
    std::memcpy(address, gid.raw, sizeof gid.raw);
  } else {
    std::memcpy(address, gid.raw + 12, sizeof(std::uint32_t));
  }
}

std::optional<std::uint32_t> ask(int netlink, int family, const sockaddr_storage& from,
                                 const sockaddr_storage& to) {
  Question question;
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<std::uint8_t>(family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  // In any state: the peer may be closing already.
  question.request.idiag_states = ~0U;
  inet_diag_sockid& id = question.request.id;
  set_end(id.idiag_src, id.idiag_sport, from, family);
  set_end(id.idiag_dst, id.idiag_dport, to, family);
  // No cookie is known; the addresses and ports suffice.
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  // The kernel has answered when this returns.
  if (sys::write(netlink, &question, sizeof question) < 0) return std::nullopt;
  alignas(nlmsghdr) std::array<std::byte, 4096> answer;
  const iovec piece{answer.data(), answer.size()};
  const auto got = sys::receive(netlink, {&piece, 1});
  nlmsghdr header{};
  inet_diag_msg found{};
  if (got < static_cast<std::ptrdiff_t>(NLMSG_HDRLEN + sizeof found)) return std::nullopt;
  std::memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;  // ENOENT
  std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
  // A listener or a socket that waits for its end has no owner to speak of.
  if (found.idiag_inode == 0) return std::nullopt;
  return found.idiag_uid;
}

}  // namespace

// The request names the connection as the peer's socket sees it, whose own address is the source.
// Both families are asked, because the socket may be of either one.
std::optional<std::uint32_t> owner_of_peer(int fd) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  if (sys::local_address(fd, &local) < 0 || sys::peer_address(fd, &peer) < 0) return std::nullopt;
  const sys::Descriptor netlink(
      sys::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid()) return std::nullopt;
  const bool ipv6 = peer.ss_family == AF_INET6;
  if (auto owner = ask(netlink.get(), ipv6 ? AF_INET6 : AF_INET, peer, local)) return owner;
  return ask(netlink.get(), ipv6 ? AF_INET : AF_INET6, peer, local);
}

}  // namespace weft::device
