#include "device/tcp_ends.h"

#include "device/addresses.h"
#include "device/system.h"

namespace weft::device {

TcpEnds TcpEnds::of(int fd) {
  TcpEnds ends;
  const bool connected =
      sys::local_address(fd, &ends.local) >= 0 && sys::peer_address(fd, &ends.remote) >= 0;
  return connected ? ends : TcpEnds();
}

bool TcpEnds::within_host() const {
  return known() && (is_loopback_address(remote) || same_host_address(local, remote));
}

}  // namespace weft::device
