// Addresses of IPv4 hosts as a socket of AF_INET6 names them: ::ffff:a.b.c.d, ipv6(7).
#pragma once

#include <sys/socket.h>

namespace weft::dropin {

// A copy of the address, which is that of the IPv4 host itself if it was such a name: the device
// knows only those. `bytes` is the length of the address.
[[nodiscard]] sockaddr_storage without_mapping(const sockaddr* address, socklen_t bytes);
// The name of the IPv4 address. The wildcard of IPv4 becomes that of IPv6.
[[nodiscard]] sockaddr_storage with_mapping(const sockaddr_storage& address);

}  // namespace weft::dropin
