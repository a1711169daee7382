// Converts between the addresses that the application uses and those of TCP and UDP. The port
// numbers differ by WEFT_PORT_OFFSET.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace weft::cm {

// Copies the address that a program passes. False for a family that is neither IPv4 nor IPv6.
[[nodiscard]] bool take_address(const sockaddr* given, sockaddr_storage& address);

// The offset wraps around, so that ephemeral ports below it have a number, too. Port 0 stays 0.
[[nodiscard]] sockaddr_storage to_tcp(sockaddr_storage address, std::uint16_t offset);
[[nodiscard]] sockaddr_storage from_tcp(sockaddr_storage address, std::uint16_t offset);
// Turns ::ffff:a.b.c.d, the form that a socket for both families reports, into a.b.c.d.
[[nodiscard]] sockaddr_storage without_mapping(const sockaddr_storage& address);

}  // namespace weft::cm
