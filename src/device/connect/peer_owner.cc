// Asks the kernel for the owner of the socket at the other end of a connection on this host:
// sock_diag(7).
#include "device/connect/peer_owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
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
// is one of that family, so both are asked for: see of_peer().
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

}  // namespace

std::optional<std::uint32_t> PeerOwners::ask(int family, const sockaddr_storage& from,
                                             const sockaddr_storage& to) {
  Question question;
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.header.nlmsg_seq = ++asked_;
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
  if (sys::write(netlink_.get(), &question, sizeof question) < 0) return std::nullopt;
  return read_answer();
}

// Skips the answer to an earlier question, which a failed call may have left unread.
std::optional<std::uint32_t> PeerOwners::read_answer() {
  alignas(nlmsghdr) std::array<std::byte, 4096> answer;
  const iovec piece{answer.data(), answer.size()};
  nlmsghdr header{};
  std::ptrdiff_t got = 0;
  do {
    got = sys::receive(netlink_.get(), {&piece, 1});
    if (got < static_cast<std::ptrdiff_t>(sizeof header)) return std::nullopt;
    std::memcpy(&header, answer.data(), sizeof header);
  } while (header.nlmsg_seq != asked_);
  inet_diag_msg found{};
  // Otherwise ENOENT.
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      got < static_cast<std::ptrdiff_t>(NLMSG_HDRLEN + sizeof found)) {
    return std::nullopt;
  }
  std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
  // A listener or a socket that waits for its end has no owner to speak of.
  if (found.idiag_inode == 0) return std::nullopt;
  return found.idiag_uid;
}

// The request names the connection as the peer's socket sees it, whose own address is the source.
// Both families are asked, because the socket may be of either one.
std::optional<std::uint32_t> PeerOwners::of_peer(const TcpEnds& ends) {
  if (!ends.known()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (!netlink_.valid()) {
    netlink_.reset(sys::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!netlink_.valid()) return std::nullopt;
  }
  const bool ipv6 = ends.remote.ss_family == AF_INET6;
  if (auto owner = ask(ipv6 ? AF_INET6 : AF_INET, ends.remote, ends.local)) return owner;
  return ask(ipv6 ? AF_INET : AF_INET6, ends.remote, ends.local);
}

void PeerOwners::abandon_after_fork() {
  netlink_.reset();
}

}  // namespace weft::device
