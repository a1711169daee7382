// The user that owns the other end of a TCP connection within this host.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <mutex>
#include <optional>

#include "device/system.h"
#include "device/tcp_ends.h"

namespace weft::device {

// One for a device, because it costs less to ask the kernel again than to open a netlink socket for
// each connection. Thread-safe.
class PeerOwners {
 public:
  // The user id behind the peer's socket of a connection, from the kernel's socket diagnosis
  // (sock_diag(7)). None if the peer is on another host, or if the kernel does not report it: no
  // inet_diag, a sandbox, or a socket that is closed by now.
  [[nodiscard]] std::optional<std::uint32_t> of_peer(const TcpEnds& ends);
  void abandon_after_fork();

 private:
  [[nodiscard]] std::optional<std::uint32_t> ask(int family, const sockaddr_storage& from,
                                                 const sockaddr_storage& to);
  [[nodiscard]] std::optional<std::uint32_t> read_answer();

  std::mutex mutex_;
  sys::Descriptor netlink_;
  std::uint32_t asked_ = 0;  // questions so far; each has its number
};

}  // namespace weft::device
