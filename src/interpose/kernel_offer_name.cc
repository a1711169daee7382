#include "interpose/kernel_offer_name.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "interpose/next.h"

namespace weft::interpose {
namespace {

// A socket of both families that is bound to no address.
constexpr const char* any_of_both = "any";
constexpr const char* any_ipv4 = "0.0.0.0";
constexpr const char* any_ipv6 = "::";

std::string with_port(const std::string& host, unsigned port) {
  return host + "," + std::to_string(port);
}

// False if a socket of another user listens at the port, as the kernel's table says (proc(5)).
bool only_listens(const char* table, unsigned port, uid_t user) {
  constexpr unsigned listening = 0x0A;
  std::ifstream lines(table);
  std::string line;
  while (std::getline(lines, line)) {
    unsigned local_port = 0;
    unsigned state = 0;
    unsigned owner = 0;
    // sl, local and remote address, state, queues, timers, retransmissions, owner
    const int got =
        std::sscanf(line.c_str(), "%*s %*[0-9A-F]:%4X %*[0-9A-F]:%*4X %2X %*s %*s %*s %u",
                    &local_port, &state, &owner);
    if (got == 3 && state == listening && local_port == port && owner != user) return false;
  }
  return true;
}

bool has_option(int fd, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return next::getsockopt(fd, level, name, &value, &bytes) == 0 && value != 0;
}

}  // namespace

std::string offered_address(int kernel) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  std::array<char, NI_MAXHOST> host{};
  auto* address = reinterpret_cast<sockaddr*>(&name);
  if (has_option(kernel, SOL_SOCKET, SO_REUSEPORT) ||
      next::getsockname(kernel, address, &bytes) != 0 ||
      getnameinfo(address, bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  const unsigned port = ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
  std::string text = host.data();
  constexpr std::string_view mapped = "::ffff:";
  if (text == any_ipv6 && !has_option(kernel, IPPROTO_IPV6, IPV6_V6ONLY)) text = any_of_both;
  if (text.starts_with(mapped)) text.erase(0, mapped.size());
  return with_port(text, port);
}

std::vector<std::string> offered_addresses(const stream::Address& peer) {
  const bool six = peer.host.find(':') != std::string::npos;
  return {with_port(peer.host, peer.port), with_port(six ? any_ipv6 : any_ipv4, peer.port),
          with_port(any_of_both, peer.port)};
}

// The first byte of the path is zero: that is the abstract namespace, which belongs to the network
// namespace, as TCP ports do.
OfferName offer_name(const std::string& address, OfferedFor kind) {
  const std::string text =
      (kind == OfferedFor::all_connections ? "weft-kernel-all/" : "weft-kernel-brief/") + address;
  OfferName name;
  name.address.sun_family = AF_UNIX;
  const std::size_t count = std::min(text.size(), sizeof name.address.sun_path - 1);
  std::memcpy(name.address.sun_path + 1, text.data(), count);
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return name;
}

// By SO_PEERCRED the kernel names who listened.
bool may_offer(int local_socket, std::uint16_t port) {
  ucred offerer{};
  socklen_t bytes = sizeof offerer;
  if (next::getsockopt(local_socket, SOL_SOCKET, SO_PEERCRED, &offerer, &bytes) != 0) return false;
  if (offerer.uid == geteuid() || offerer.uid == 0) return true;
  return only_listens("/proc/net/tcp", port, offerer.uid) &&
         only_listens("/proc/net/tcp6", port, offerer.uid);
}

}  // namespace weft::interpose
