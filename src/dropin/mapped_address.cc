#include "dropin/mapped_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace weft::dropin {
namespace {

constexpr std::size_t prefix_bytes = 12;  // RFC 4291 §2.5.5.2: zeros, and two bytes of ones

}  // namespace

// The bytes are copied from one type to the other, because of the aliasing rules.
sockaddr_storage without_mapping(const sockaddr* address, socklen_t bytes) {
  sockaddr_storage copy{};
  std::memcpy(&copy, address, std::min<std::size_t>(bytes, sizeof copy));
  if (copy.ss_family != AF_INET6 || bytes < sizeof(sockaddr_in6)) return copy;
  sockaddr_in6 name{};
  std::memcpy(&name, &copy, sizeof name);
  if (!IN6_IS_ADDR_V4MAPPED(&name.sin6_addr)) return copy;
  sockaddr_in host{};
  host.sin_family = AF_INET;
  host.sin_port = name.sin6_port;
  std::memcpy(&host.sin_addr, name.sin6_addr.s6_addr + prefix_bytes, sizeof host.sin_addr);
  copy = {};
  std::memcpy(&copy, &host, sizeof host);
  return copy;
}

sockaddr_storage with_mapping(const sockaddr_storage& address) {
  sockaddr_in host{};
  std::memcpy(&host, &address, sizeof host);
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_port = host.sin_port;
  if (host.sin_addr.s_addr != INADDR_ANY) {
    name.sin6_addr.s6_addr[10] = name.sin6_addr.s6_addr[11] = 0xFF;
    std::memcpy(name.sin6_addr.s6_addr + prefix_bytes, &host.sin_addr, sizeof host.sin_addr);
  }
  sockaddr_storage made{};
  std::memcpy(&made, &name, sizeof name);
  return made;
}

}  // namespace weft::dropin
