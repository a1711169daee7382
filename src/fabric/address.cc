#include "fabric/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace weft::fabric {
namespace {

std::size_t size_of_family(int family) {
  if (family == AF_INET) return sizeof(sockaddr_in);
  return family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

// Copies, because the storage has the alignment and type of another structure.
template <typename T>
T as(const SocketAddress& address) {
  T value{};
  std::memcpy(&value, &address.storage, sizeof value);
  return value;
}

template <typename T>
SocketAddress made_of(const T& value) {
  SocketAddress address;
  std::memcpy(&address.storage, &value, sizeof value);
  address.bytes = sizeof value;
  return address;
}

void set_port(SocketAddress& address, std::uint16_t port) {
  if (address.storage.ss_family == AF_INET) {
    auto in = as<sockaddr_in>(address);
    in.sin_port = htons(port);
    address = made_of(in);
  } else {
    auto in = as<sockaddr_in6>(address);
    in.sin6_port = htons(port);
    address = made_of(in);
  }
}

}  // namespace

std::optional<SocketAddress> read_address(const void* address, std::size_t bytes) {
  if (!address || bytes < sizeof(sa_family_t)) return std::nullopt;
  sa_family_t family = AF_UNSPEC;
  std::memcpy(&family, address, sizeof family);
  // The size may be larger than the family needs: programs pass that of sockaddr_storage.
  const std::size_t needed = size_of_family(family);
  if (needed == 0 || bytes < needed) return std::nullopt;
  SocketAddress read;
  std::memcpy(&read.storage, address, needed);
  read.bytes = needed;
  return read;
}

// Used where libfabric passes no size: how many bytes are read depends on the family.
std::optional<SocketAddress> read_address(const void* address) {
  return read_address(address, sizeof(sockaddr_storage));
}

// The address is of IPv4 or IPv6, because read_address() refuses all other families.
stream::Address to_text(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.storage.ss_family == AF_INET) {
    const auto in = as<sockaddr_in>(address);
    inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(in.sin_port)};
  }
  const auto in = as<sockaddr_in6>(address);
  inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
  return {text.data(), ntohs(in.sin6_port)};
}

std::optional<SocketAddress> from_text(const std::string& text) {
  // The last colon is the one before the port. Those of an IPv6 address are in brackets.
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::uint16_t port = 0;
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (text.starts_with('[') && colon >= 2) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    if (inet_pton(AF_INET6, text.substr(1, colon - 2).c_str(), &in.sin6_addr) != 1)
      return std::nullopt;
    return made_of(in);
  }
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &in.sin_addr) != 1) return std::nullopt;
  return made_of(in);
}

// A port without a host is still an address to bind to.
bool is_wildcard(const SocketAddress& address) {
  const stream::Address text = to_text(address);
  return text.port == 0 && (text.host == "0.0.0.0" || text.host == "::");
}

// All other members are zero, which is the wildcard of both families.
SocketAddress wildcard(int family) {
  if (family != AF_INET6) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    return made_of(in);
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  return made_of(in);
}

// connect(2) on a UDP socket looks up the route without sending a packet.
SocketAddress source_towards(const SocketAddress& destination) {
  const int family = destination.storage.ss_family;
  SocketAddress target = destination;
  set_port(target, 9);  // discard; any port but 0
  SocketAddress source = wildcard(family);
  const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return source;
  SocketAddress found;
  auto room = static_cast<socklen_t>(sizeof found.storage);
  const bool routed = connect(fd, reinterpret_cast<const sockaddr*>(&target.storage),
                              static_cast<socklen_t>(target.bytes)) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&found.storage), &room) == 0;
  ::close(fd);
  if (!routed) return source;
  found.bytes = source.bytes;
  // The port is the one of the socket that looked up the route, which is closed.
  set_port(found, 0);
  return found;
}

// As fi_getname(3) asks: as much as fits is copied, and the size always becomes the one that is
// needed.
int give_address(const SocketAddress& address, void* to, std::size_t* room) {
  if (!room || (!to && *room > 0)) return -FI_EINVAL;
  const std::size_t fits = std::min(*room, address.bytes);
  if (fits > 0) std::memcpy(to, &address.storage, fits);
  *room = address.bytes;
  return fits < address.bytes ? -FI_ETOOSMALL : 0;
}

}  // namespace weft::fabric
