// What the kernel knows of a TCP connection.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace weft::test {

// Whether the peer has reset the connection. One that has only finished sending leaves it open.
[[nodiscard]] inline bool was_reset(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_state == TCP_CLOSE;
}

}  // namespace weft::test
