// Making, connecting and ending sockets.
#include <fcntl.h>
#include <netinet/in.h>

#include "interpose/address.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/listening.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

int accept_from(Socket& listener, sockaddr* address, socklen_t* bytes, int type) {
  if (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) return fail_with(EINVAL);
  if (listener.phase() == Socket::Phase::lost) {
    say("a socket that listened before fork(2) is the parent's, and a child cannot accept from it");
    return fail_with(EOPNOTSUPP);
  }
  const auto listening = listener.listening();
  if (!listening) return fail_with(EINVAL);
  while (true) {
    if (auto stream = listening->take()) {
      int visible = -1;
      auto made = Socket::accepted(listener, std::move(*stream), type, visible);
      give(made->peer_name(), address, bytes);
      put(visible, std::move(made));
      return visible;
    }
    if (listener.phase() != Socket::Phase::listening || !listening->is_open()) {
      return fail_with(EINVAL);
    }
    if (listener.nonblocking()) return fail_with(EAGAIN);
    const int failed = listener.shadow().await_readable();
    if (failed == EINTR || failed == EAGAIN) return fail_with(failed);
  }
}

}  // namespace

WEFT_INTERPOSED int socket(int family, int type, int protocol) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const bool ours = (family == AF_INET || family == AF_INET6) && kind == SOCK_STREAM &&
                    (protocol == 0 || protocol == IPPROTO_TCP);
  if (!ours) return next::socket(family, type, protocol);
  return guarded([&] {
    int visible = -1;
    auto made = Socket::make(family, type, protocol, visible);
    put(visible, std::move(made));
    return visible;
  });
}

WEFT_INTERPOSED int bind(int fd, const sockaddr* address, socklen_t bytes) {
  const auto socket = find(fd);
  if (!socket) return next::bind(fd, address, bytes);
  return guarded([&] {
    socket->bind(to_address(address, bytes, false));
    return 0;
  });
}

WEFT_INTERPOSED int listen(int fd, int backlog) {
  const auto socket = find(fd);
  if (!socket) return next::listen(fd, backlog);
  return guarded([&] {
    socket->listen(backlog);
    return 0;
  });
}

WEFT_INTERPOSED int accept4(int fd, sockaddr* address, socklen_t* bytes, int type) {
  const auto socket = find(fd);
  if (!socket) return next::accept4(fd, address, bytes, type);
  return guarded([&] { return accept_from(*socket, address, bytes, type); });
}

WEFT_INTERPOSED int accept(int fd, sockaddr* address, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return next::accept(fd, address, bytes);
  return guarded([&] { return accept_from(*socket, address, bytes, 0); });
}

WEFT_INTERPOSED int connect(int fd, const sockaddr* address, socklen_t bytes) {
  const auto socket = find(fd);
  if (!socket) return next::connect(fd, address, bytes);
  return guarded([&] {
    const int error = socket->connect(to_address(address, bytes, true));
    return error == 0 ? 0 : fail_with(error);
  });
}

WEFT_INTERPOSED int shutdown(int fd, int how) {
  const auto socket = find_stream(fd);
  if (!socket) return next::shutdown(fd, how);
  return guarded([&] {
    socket->shut_down(how);
    return 0;
  });
}

WEFT_INTERPOSED int getsockname(int fd, sockaddr* address, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return next::getsockname(fd, address, bytes);
  return guarded([&] {
    give(socket->local_name(), address, bytes);
    return 0;
  });
}

WEFT_INTERPOSED int getpeername(int fd, sockaddr* address, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return next::getpeername(fd, address, bytes);
  return guarded([&] {
    give(socket->peer_name(), address, bytes);
    return 0;
  });
}

WEFT_INTERPOSED int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) {
  const auto socket = find(fd);
  if (!socket) return next::setsockopt(fd, level, name, value, bytes);
  return guarded([&] { return socket->set_option(level, name, value, bytes); });
}

WEFT_INTERPOSED int getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return next::getsockopt(fd, level, name, value, bytes);
  return guarded([&] { return socket->get_option(level, name, value, bytes); });
}
