// Making, connecting and ending sockets.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

#include <optional>
#include <utility>

#include "interpose/address.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/listening.h"
#include "interpose/newcomer.h"
#include "interpose/table.h"
#include "weft/error.hpp"

using namespace weft::interpose;

namespace {

// Gives the program a descriptor of who was let in.
int hand_out(Newcomer newcomer, Manner manner, int type, sockaddr* address, socklen_t* bytes) {
  int visible = -1;
  if (auto* stream = std::get_if<weft::stream::Stream>(&newcomer)) {
    auto made = Socket::accepted(std::move(manner), std::move(*stream), type, visible);
    give(made->peer_name(), address, bytes);
    put(visible, std::move(made));
    return visible;
  }
  const int plain = std::get<Descriptor>(newcomer).get();
  set_blocking(plain, (type & SOCK_NONBLOCK) == 0);
  visible = next::fcntl(plain, type & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, nullptr);
  if (visible < 0) return visible;
  forget(visible);
  if (address && bytes) next::getpeername(visible, address, bytes);
  return visible;
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return next::poll(&entry, 1, 0) > 0;
}

// Out of the kernel's queue, the first who is to be served. Nothing and errno where there is none.
std::optional<Newcomer> next_of_kernel(int kernel, const Manner& manner) {
  while (true) {
    Descriptor connection(next::accept4(kernel, nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) return std::nullopt;
    try {
      auto asking =
          hear(out_of_the_way(std::move(connection)), options_of(manner), Patience::little);
      if (asking) return let_in(std::move(*asking));
    } catch (const weft::Error&) {
      // It has gone meanwhile.
    }
  }
}

int accept_from(Socket& listener, sockaddr* address, socklen_t* bytes, int type) {
  const auto listening = listener.listening();
  if (!listening) return fail_with(EINVAL);
  while (true) {
    if (auto newcomer = listening->take()) {
      return hand_out(std::move(*newcomer), listener.manner(), type, address, bytes);
    }
    if (!listening->is_open()) return fail_with(EINVAL);
    if (listening->is_left_to_kernel() && is_readable(listener.kernel())) {
      auto newcomer = next_of_kernel(listener.kernel(), listener.manner());
      const int error = errno;
      listening->look_again(false);
      if (newcomer) {
        listening->go_ahead();
        return hand_out(std::move(*newcomer), listener.manner(), type, address, bytes);
      }
      if (error != EAGAIN) return fail_with(error);
    }
    if (listener.nonblocking()) return fail_with(EAGAIN);
    const int failed = listener.shadow().await_readable();
    if (failed == EINTR || failed == EAGAIN) return fail_with(failed);
  }
}

// A socket of the kernel's: of the parent before fork(2), or of whoever started this program.
int accept_from_kernel(int listener, sockaddr* address, socklen_t* bytes, int type) {
  const Manner manner = manner_of(listener);
  auto newcomer = next_of_kernel(listener, manner);
  return newcomer ? hand_out(std::move(*newcomer), manner, type, address, bytes) : -1;
}

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return next::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
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
    socket->bind(address, bytes);
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
  if (!socket && !is_tcp(fd)) return next::accept4(fd, address, bytes, type);
  if (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) return fail_with(EINVAL);
  return guarded([&] {
    return socket ? accept_from(*socket, address, bytes, type)
                  : accept_from_kernel(fd, address, bytes, type);
  });
}

WEFT_INTERPOSED int accept(int fd, sockaddr* address, socklen_t* bytes) {
  return accept4(fd, address, bytes, 0);
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
