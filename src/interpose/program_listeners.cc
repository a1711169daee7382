// The part of libweft-node.so for programs that use one number as a TCP port and as a port of
// rdma_cm: their own listening socket is the only one of the port, and what arrives there for the
// device goes to the device. Without hooks, as in programs that listen by rdma_cm at no port, the
// functions are those of the C library.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/socket_hooks.h"
#include "interpose/next.h"

#define WEFT_NODE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<const weft::SocketHooks*> hooks{nullptr};

// accept(2) may be called on a socket that blocks: then the wait goes on, as it does where a client
// has given up between poll(2) and accept(2).
int accept_next(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  const socklen_t room = bytes ? *bytes : 0;
  while (true) {
    const int connection = weft::interpose::next::accept4(listener, address, bytes, flags);
    const weft::SocketHooks* const device = hooks.load(std::memory_order_acquire);
    if (connection < 0 || !device || !device->take(device->context, connection)) return connection;
    if (bytes) *bytes = room;
  }
}

}  // namespace

WEFT_NODE_EXPORT void weft_set_socket_hooks(const weft::SocketHooks* wanted);
void weft_set_socket_hooks(const weft::SocketHooks* wanted) {
  hooks.store(wanted, std::memory_order_release);
}

WEFT_NODE_EXPORT int accept(int listener, sockaddr* address, socklen_t* bytes) {
  return accept_next(listener, address, bytes, 0);
}

WEFT_NODE_EXPORT int accept4(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  return accept_next(listener, address, bytes, flags);
}

// Programs look at errno of an earlier call behind a close(2) that succeeds.
WEFT_NODE_EXPORT int close(int descriptor) {
  if (const weft::SocketHooks* const device = hooks.load(std::memory_order_acquire)) {
    const int kept = errno;
    device->closing(device->context, descriptor);
    errno = kept;
  }
  return weft::interpose::next::close(descriptor);
}

WEFT_NODE_EXPORT int bind(int socket, const sockaddr* address, socklen_t bytes) noexcept {
  const int bound = weft::interpose::next::bind(socket, address, bytes);
  const weft::SocketHooks* const device = hooks.load(std::memory_order_acquire);
  if (!device) return bound;
  if (bound == 0) {
    device->bound(device->context, socket);
    return 0;
  }
  if (errno != EADDRINUSE) return bound;
  const int failed = device->bind(device->context, socket, address, bytes);
  if (failed == 0) return 0;
  errno = failed;
  return -1;
}
