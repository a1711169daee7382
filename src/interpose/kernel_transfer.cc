#include "interpose/kernel_transfer.h"

#include <cerrno>

#include "interpose/data.h"
#include "interpose/kernel_connection.h"
#include "interpose/table.h"

namespace weft::interpose {

bool relay_for_kernel(int fd) {
  let_key_go(fd);
  const auto socket = find_stream(fd);
  if (!socket) return true;
  if (guarded([&] { return socket->start_relay() ? 1 : 0; }) == 1) return true;
  errno = ENOTCONN;
  return false;
}

}  // namespace weft::interpose
