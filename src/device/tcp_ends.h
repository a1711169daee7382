// The two addresses of a TCP connection.
#pragma once

#include <sys/socket.h>

namespace weft::device {

struct TcpEnds {
  sockaddr_storage local{};
  sockaddr_storage remote{};

  // Asks the kernel. Both are AF_UNSPEC where the socket is not connected.
  [[nodiscard]] static TcpEnds of(int fd);
  [[nodiscard]] bool known() const { return remote.ss_family != AF_UNSPEC; }
  // Whether both are addresses of this host, as far as one can tell by looking at them.
  [[nodiscard]] bool within_host() const;
};

}  // namespace weft::device
