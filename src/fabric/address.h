// Converts between socket addresses, which libfabric uses, and the text form of streams.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <string>

#include "weft/stream.hpp"

namespace weft::fabric {

struct SocketAddress {
  sockaddr_storage storage{};
  std::size_t bytes = 0;
};

// Reads a sockaddr_in or sockaddr_in6. Returns nothing for other families, or if bytes are missing.
// The second form takes the size from the family.
[[nodiscard]] std::optional<SocketAddress> read_address(const void* address, std::size_t bytes);
[[nodiscard]] std::optional<SocketAddress> read_address(const void* address);

[[nodiscard]] stream::Address to_text(const SocketAddress& address);
// Parses "192.0.2.1:7174" or "[2001:db8::1]:7174".
[[nodiscard]] std::optional<SocketAddress> from_text(const std::string& text);

[[nodiscard]] bool is_wildcard(const SocketAddress& address);  // no host and no port
// `family`: AF_INET6, else IPv4.
[[nodiscard]] SocketAddress wildcard(int family);

// The address from which the host's routing table sends to `destination`, with port 0; the wildcard
// if there is no route.
[[nodiscard]] SocketAddress source_towards(const SocketAddress& destination);

// As fi_getname(3): copies as much as `*room` allows and sets it to the whole size. Returns
// -FI_ETOOSMALL if the address was cut.
[[nodiscard]] int give_address(const SocketAddress& address, void* to, std::size_t* room);

}  // namespace weft::fabric
