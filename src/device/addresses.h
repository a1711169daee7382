// The addresses of this host and their GIDs.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::device {

// An address of a network interface.
struct LocalAddress {
  sockaddr_storage address{};
  unsigned interface_index = 0;
  std::string interface;
  bool loopback = false;
  std::uint32_t mtu_bytes = 1500;
  unsigned prefix_bits = 0;  // of the subnet; IPv4 only
};

// All addresses of interfaces that are up: other interfaces before loopback, IPv4 before IPv6,
// global IPv6 before link-local. Or a sentence on why they cannot be listed.
[[nodiscard]] Result<std::vector<LocalAddress>, std::string> local_addresses();

// Converts to a GID; IPv4 addresses are mapped (::ffff:a.b.c.d).
[[nodiscard]] ibv_gid gid_of(const sockaddr_storage& address);
// Converts a GID to an address; mapped ones become IPv4.
[[nodiscard]] sockaddr_storage address_of(const ibv_gid& gid);
// Sets the interface of a link-local address; does nothing for other addresses.
void set_scope(sockaddr_storage& address, unsigned interface_index);
// Compares without the port.
[[nodiscard]] bool same_host_address(const sockaddr_storage& a, const sockaddr_storage& b);
[[nodiscard]] bool is_any_address(const sockaddr_storage& address);
// Whether a connection between them never leaves this host.
[[nodiscard]] bool stays_on_host(const sockaddr_storage& source,
                                 const sockaddr_storage& destination);
[[nodiscard]] bool is_loopback_address(const sockaddr_storage& address);
[[nodiscard]] std::uint16_t port_of(const sockaddr_storage& address);
void set_port(sockaddr_storage& address, std::uint16_t port);
// Address and port, for maps.
using AddressKey = std::array<std::uint8_t, 18>;
[[nodiscard]] AddressKey key_of(const sockaddr_storage& address);
[[nodiscard]] socklen_t length_of(const sockaddr_storage& address);
// "192.0.2.1:7174" or "[::1]:7174".
[[nodiscard]] std::string to_string(const sockaddr_storage& address);
// Parses a numeric address without a port; false if it is none.
[[nodiscard]] bool parse_address(const std::string& text, sockaddr_storage& address);

}  // namespace weft::device
