// The kernel's routing table.
#pragma once

#include <sys/socket.h>

namespace weft::device {

// Finds the address from which the kernel would send to `destination`, with port 0. `source` may
// already name one (AF_UNSPEC: any). 0 or an errno value: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL;
// EINVAL from a loopback address to another network.
int choose_source(const sockaddr_storage& destination, sockaddr_storage& source);

}  // namespace weft::device
