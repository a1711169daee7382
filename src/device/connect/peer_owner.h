// The user that owns the other end of a TCP connection within this host.
#pragma once

#include <cstdint>
#include <optional>

namespace weft::device {

// The user id behind the peer's socket of the connection `fd`, from the kernel's socket diagnosis
// (sock_diag(7)). None if the peer is on another host, or if the kernel does not report it: no
// inet_diag, a sandbox, or a socket that is closed by now.
[[nodiscard]] std::optional<std::uint32_t> owner_of_peer(int fd);

}  // namespace weft::device
