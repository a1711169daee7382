#include "cm/ports.h"

#include <netinet/in.h>

#include <cstring>

#include "device/addresses.h"

namespace weft::cm {

bool take_address(const sockaddr* given, sockaddr_storage& address) {
  address = {};
  if (!given || (given->sa_family != AF_INET && given->sa_family != AF_INET6)) return false;
  const bool ipv4 = given->sa_family == AF_INET;
  std::memcpy(&address, given, ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return true;
}

sockaddr_storage to_tcp(sockaddr_storage address, std::uint16_t offset) {
  const std::uint16_t port = device::port_of(address);
  if (port != 0) device::set_port(address, static_cast<std::uint16_t>(port + offset));
  return address;
}

sockaddr_storage from_tcp(sockaddr_storage address, std::uint16_t offset) {
  const std::uint16_t port = device::port_of(address);
  if (port != 0) device::set_port(address, static_cast<std::uint16_t>(port - offset));
  return address;
}

sockaddr_storage without_mapping(const sockaddr_storage& address) {
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) return address;
  sockaddr_storage result{};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(result);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = ipv6.sin6_port;
  // RFC 4291 §2.5.5.2: the last four bytes are the IPv4 address.
  std::memcpy(&ipv4.sin_addr, ipv6.sin6_addr.s6_addr + 12, sizeof ipv4.sin_addr);
  return result;
}

}  // namespace weft::cm
