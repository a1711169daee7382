// A TCP port that belongs to an id from rdma_bind_addr(3) on, and the choice of a source address.
#pragma once

#include <sys/socket.h>

#include "device/system.h"

namespace weft::cm {

// rdma_set_option(3), level RDMA_OPTION_ID.
struct SocketOptions {
  int tos = -1;  // as set by RDMA_OPTION_ID_TOS; negative: not set
  bool reuse_address = false;
  bool ipv6_only = false;
};

// Binds a socket so that nobody else gets the port, other ids of this process included. 0 or an
// errno value: EADDRINUSE, EADDRNOTAVAIL, EACCES. `address` tells the port afterwards.
int reserve(sockaddr_storage& address, const SocketOptions& options,
            device::sys::Descriptor& socket);
// From bound to listening.
int start_listening(int fd, int backlog);

// Which address the kernel would send from towards `destination`, with port 0. `source` may name
// one (AF_UNSPEC: any). 0 or an errno value: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL.
int choose_source(const sockaddr_storage& destination, sockaddr_storage& source);

}  // namespace weft::cm
