// What libweft-node.so, which is loaded into programs, asks the device about the program's own TCP
// sockets: a program may use one number as a TCP port and as a port of rdma_cm, and the device has
// to get those connections that are meant for it (cm/shared_ports.h).
#pragma once

#include <sys/socket.h>

namespace weft {

struct SocketHooks {
  void* context;
  // accept(2) has returned `connection`. True if it belongs to the device, which has it from then
  // on; the program gets the next one.
  bool (*take)(void* context, int connection);
  // bind(2) has bound `socket`.
  void (*bound)(void* context, int socket);
  // bind(2) has failed with EADDRINUSE. Binds the socket if the device has the port and can share
  // it. 0, or the errno value of bind(2).
  int (*bind)(void* context, int socket, const sockaddr* address, socklen_t bytes);
  // The program is about to close a descriptor, which may be that of a listening socket.
  void (*closing)(void* context, int descriptor);
};

// libweft-node.so exports this function under the name below. The hooks are used until it is called
// again; null: none.
using SetSocketHooks = void(const SocketHooks* hooks);
inline constexpr const char* set_socket_hooks_name = "weft_set_socket_hooks";

}  // namespace weft
