// System calls that move several datagrams at once. As those of system.h, which they belong to.
#pragma once

#include <sys/socket.h>

#include <span>

namespace weft::device::sys {

// sendmmsg(2) and recvmmsg(2), which never block. Return how many datagrams were moved, from the
// first one on, or -errno where it is none.
int send_messages(int fd, std::span<mmsghdr> messages);
int receive_messages(int fd, std::span<mmsghdr> messages);

}  // namespace weft::device::sys
