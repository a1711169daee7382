#include "interpose/kernel_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

namespace weft::interpose {

int KernelSocket::open() {
  if (is_open()) return fd();
  Descriptor made(next::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!made.valid()) return -1;
  // A kernel socket has taken these options before, this one's predecessor or the listener, so
  // errors are not expected and are ignored.
  for (const SocketOption& option : options_.values) {
    next::setsockopt(made.get(), option.level, option.name, option.value.data(),
                     static_cast<socklen_t>(option.value.size()));
  }
  socket_ = move_high(std::move(made));
  return socket_.get();
}

}  // namespace weft::interpose
