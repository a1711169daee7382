// Reserves a TCP port for an id, from rdma_bind_addr(3) on.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "device/system.h"

namespace weft::cm {

// rdma_set_option(3), level RDMA_OPTION_ID.
struct SocketOptions {
  int tos = -1;  // as set by RDMA_OPTION_ID_TOS; negative: not set
  bool reuse_address = false;
  bool ipv6_only = false;
  // See own_options.h.
  std::uint64_t reply_timeout_ns = 0;
  std::optional<std::uint64_t> refused_ns{};
};

// Binds a socket so that no other socket gets the port, not even of another id in this process. 0
// or an errno value: EADDRINUSE, EADDRNOTAVAIL, EACCES. Stores the actual port in `address`.
int reserve(sockaddr_storage& address, const SocketOptions& options,
            device::sys::Descriptor& socket);
// Makes a bound socket listen. 0 or an errno value.
int start_listening(int fd, int backlog);

// The TCP sockets of this process that are bound to the port and not connected.
[[nodiscard]] std::vector<int> own_sockets(std::uint16_t tcp_port);
[[nodiscard]] bool is_listening(int socket);
// A socket of this process listens on the port, by whatever address.
[[nodiscard]] bool listens_itself(std::uint16_t tcp_port);

}  // namespace weft::cm
