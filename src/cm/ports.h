// Addresses as the application knows them, and as TCP does: the port offset lies between.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace weft::cm {

// Takes the address of a program: false for a family that is neither IPv4 nor IPv6.
[[nodiscard]] bool take_address(const sockaddr* given, sockaddr_storage& address);

// The offset wraps around, so that ephemeral ports below it have a number as well. Port 0 stays.
[[nodiscard]] sockaddr_storage to_tcp(sockaddr_storage address, std::uint16_t offset);
[[nodiscard]] sockaddr_storage from_tcp(sockaddr_storage address, std::uint16_t offset);
// ::ffff:a.b.c.d, as a socket for both families has it, becomes a.b.c.d.
[[nodiscard]] sockaddr_storage without_mapping(const sockaddr_storage& address);

}  // namespace weft::cm
