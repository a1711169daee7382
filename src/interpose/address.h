// Addresses as sockets have them, and as streams do.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "weft/stream/options.hpp"

namespace weft::interpose {

// Throws Error(EINVAL) or Error(EAFNOSUPPORT). IPv4 in IPv6 becomes IPv4; to connect to any address
// means to connect to this host.
[[nodiscard]] stream::Address to_address(const sockaddr* address, socklen_t bytes, bool connecting);
// Of "192.0.2.1:7174" or "[::1]:7174", as a socket of that family says it; no address where it is
// neither.
[[nodiscard]] sockaddr_storage from_text(const std::string& text, int family);
[[nodiscard]] sockaddr_storage no_address(int family);
// As much as there is room for; `bytes` becomes what it would need.
void give(const sockaddr_storage& from, sockaddr* address, socklen_t* bytes);
// WEFT_PORT_OFFSET: the ports of the kernel's sockets are so much higher than the program's.
[[nodiscard]] std::uint16_t port_offset();
// For the kernel: the program's address with another port.
struct KernelName {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};
[[nodiscard]] KernelName for_kernel(const sockaddr* address, socklen_t bytes);
// As the program knows it: getsockname(2) of the kernel's socket.
[[nodiscard]] sockaddr_storage name_of(int kernel);
[[nodiscard]] std::uint16_t port_of(const sockaddr_storage& address);
[[nodiscard]] socklen_t size_of(const sockaddr_storage& address);

}  // namespace weft::interpose
