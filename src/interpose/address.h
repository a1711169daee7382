// Converts between socket addresses and those of streams.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "weft/stream/options.hpp"

namespace weft::interpose {

// What the kernel checks before it knows the socket. Throws Error(EINVAL) or Error(EFAULT).
void check_name(const sockaddr* address, socklen_t bytes);
// Throws Error(EINVAL), Error(EFAULT) or Error(EAFNOSUPPORT). An IPv4-mapped IPv6 address becomes
// IPv4. If `connecting`, the unspecified address becomes that of this host.
[[nodiscard]] stream::Address to_address(const sockaddr* address, socklen_t bytes, bool connecting);
// Parses "192.0.2.1:7174" or "[::1]:7174" into the form that a socket of `family` returns: IPv4 is
// mapped for an IPv6 socket. Any other text gives empty_address().
[[nodiscard]] sockaddr_storage parse_address(const std::string& text, int family);
// The text that parse_address() takes.
[[nodiscard]] std::string to_text(const stream::Address& address);
// The form in which a socket of `family` connects to `peer`.
[[nodiscard]] sockaddr_storage address_of(const stream::Address& peer, int family);
// The unspecified address and port 0.
[[nodiscard]] sockaddr_storage empty_address(int family);
// Copies as much as `*bytes` has room for, and sets it to the whole size, as getsockname(2). No
// effect without a pointer. Throws Error(EINVAL) for a negative length.
void copy_out(const sockaddr_storage& from, sockaddr* address, socklen_t* bytes);
// WEFT_PORT_OFFSET is added to the program's port numbers for kernel sockets.
[[nodiscard]] std::uint16_t port_offset();
// The program's address with its port moved by port_offset(), for the kernel.
struct KernelName {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};
[[nodiscard]] KernelName to_kernel_name(const sockaddr* address, socklen_t bytes);
// getsockname(2) of a kernel socket, with the port as the program knows it.
[[nodiscard]] sockaddr_storage local_name_of(int kernel);
[[nodiscard]] std::uint16_t port_of(const sockaddr_storage& address);
[[nodiscard]] socklen_t size_of(const sockaddr_storage& address);

}  // namespace weft::interpose
