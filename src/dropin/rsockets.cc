// rsocket(7): creates, connects and closes sockets over RDMA. Each is a stream, a listener for
// streams, or a datagram socket.
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <cstdarg>
#include <mutex>

#include "dropin/export.h"
#include "dropin/repoll.h"
#include "dropin/rsocket.h"

namespace {

using namespace weft::dropin;
using weft::Deadline;
using weft::Error;
namespace stream = weft::stream;

// A stream socket becomes a listener at once, so that getsockname returns its port. connect_to()
// takes the address over.
int bind_to(Rsocket& socket, const stream::Address& address) {
  const std::lock_guard lock(socket.mutex);
  if (socket.type == SOCK_DGRAM) {
    if (socket.datagrams) return fail_with(EINVAL);
    socket.datagrams = DatagramSocket::open(address, socket.options);
    return 0;
  }
  if (socket.listener || socket.stream) return fail_with(EINVAL);
  socket.listener = std::make_shared<stream::Listener>(address, socket.options);
  return 0;
}

int listen_at(Rsocket& socket, int backlog) {
  const std::lock_guard lock(socket.mutex);
  if (socket.type == SOCK_DGRAM) return fail_with(EOPNOTSUPP);
  if (socket.stream) return fail_with(EINVAL);
  if (socket.listening) return 0;
  // Without an address, listen(2) takes a free port of all addresses as well.
  if (!socket.listener) {
    socket.listener = std::make_shared<stream::Listener>(any_address(socket), socket.options);
  }
  socket.listener->listen(backlog > 0 ? backlog : 1);
  socket.listening = true;
  return 0;
}

// Whether the next client would cause this error too. Where memory or descriptors are used up,
// accept(2) fails as well, while a program that waits for other clients would wait for ever.
bool is_of_this_side(const Error& error) {
  switch (error.error_number()) {
    case EINVAL:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return true;
    default:
      return false;
  }
}

int accept_from(Rsocket& socket, sockaddr* address, socklen_t* bytes) {
  if (socket.type == SOCK_DGRAM) return fail_with(EOPNOTSUPP);
  if (!socket.listening) return fail_with(EINVAL);
  const auto listener = socket.get_listener();
  while (true) {
    // Waits without the lock, so that other threads can use the socket meanwhile.
    auto request = listener->next(socket.deadline(0));
    if (!request) return fail_with(EAGAIN);
    // As Linux does: accepted sockets inherit options such as sizes, but not O_NONBLOCK.
    auto made = std::make_shared<Rsocket>(socket.family, SOCK_STREAM, false);
    {
      const std::lock_guard lock(socket.mutex);
      made->options = socket.options;
      made->settings = socket.settings;
    }
    made->options.keepalive = made->keepalive();
    try {
      made->stream =
          std::make_shared<stream::Stream>(std::move(*request).accept({}, made->options));
    } catch (const Error& error) {
      if (is_of_this_side(error)) throw;
      continue;  // the client has disconnected: take the next one
    }
    give_address(peer_of(made->stream->id()), address, bytes);
    return add_rsocket(std::move(made));
  }
}

// connect(2) for a socket that already has a stream.
int connect_again(const std::shared_ptr<stream::Stream>& stream, bool nonblocking) {
  switch (stream->state()) {
    case stream::State::connecting:
      if (nonblocking) return fail_with(EALREADY);
      break;
    case stream::State::failed:
      return fail_with(stream->error_number());
    default:
      return fail_with(EISCONN);
  }
  (void)stream->await_connected(Deadline::never());
  return 0;
}

int connect_to(Rsocket& socket, const stream::Address& peer) {
  std::shared_ptr<stream::Stream> stream;
  {
    const std::lock_guard lock(socket.mutex);
    if (socket.listening) return fail_with(EOPNOTSUPP);
    stream = socket.stream;
    if (!stream) {
      socket.options.keepalive = socket.keepalive();
      auto made = std::make_shared<stream::Stream>(socket.options);
      if (socket.listener) {
        const auto& local = local_of(socket.listener->id());
        const auto address = to_address(reinterpret_cast<const sockaddr*>(&local), sizeof local);
        socket.listener.reset();  // the stream binds to its address
        made->bind(address);
      }
      // Stored before it connects, so that a call in another thread finds it: connect_again().
      socket.stream = std::move(made);
    }
  }
  if (stream) return connect_again(stream, socket.nonblocking);
  stream = socket.get_stream();
  // The lock is free here, because other calls on the socket need it.
  stream->start_connecting(peer);
  if (socket.nonblocking) return fail_with(EINPROGRESS);
  (void)stream->await_connected(Deadline::never());
  return 0;
}

// SHUT_RD only makes receives return 0: the peer is not notified.
int shut_down(Rsocket& socket, int how) {
  if (socket.type == SOCK_DGRAM) return fail_with(EOPNOTSUPP);
  const auto stream = socket.get_stream();
  if (!stream) return fail_with(ENOTCONN);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail_with(EINVAL);
  // The peer receives the end behind all bytes that were sent.
  if (how != SHUT_RD) stream->finish();
  if (how != SHUT_WR) socket.read_shut = true;
  return 0;
}

// SO_LINGER: with a time of zero the connection is reset; without the option, the stream's default
// time limits how long close blocks.
void end_stream(Rsocket& socket, stream::Stream& stream) {
  linger lingering{};
  {
    // A copy, because closing may block.
    const std::lock_guard lock(socket.mutex);
    lingering = socket.settings.lingering;
  }
  if (lingering.l_onoff && lingering.l_linger == 0) {
    stream.abort();
    stream.close(Deadline::now());
  } else if (lingering.l_onoff) {
    stream.close(std::chrono::seconds(lingering.l_linger));
  } else {
    stream.close(stream.options().linger);
  }
}

}  // namespace

// SOCK_CLOEXEC changes nothing: the descriptor is close-on-exec from the start.
WEFT_EXPORT int rsocket(int domain, int type, int protocol) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (domain != AF_INET && domain != AF_INET6) return fail_with(EAFNOSUPPORT);
  if (kind != SOCK_STREAM && kind != SOCK_DGRAM) return fail_with(ESOCKTNOSUPPORT);
  const int usual = kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
  if (protocol != 0 && protocol != usual) return fail_with(EPROTONOSUPPORT);
  return guarded([&] {
    return add_rsocket(std::make_shared<Rsocket>(domain, kind, (type & SOCK_NONBLOCK) != 0));
  });
}

WEFT_EXPORT int rbind(int descriptor, const sockaddr* address, socklen_t bytes) {
  return with_rsocket(descriptor,
                      [&](Rsocket& socket) { return bind_to(socket, to_address(address, bytes)); });
}

WEFT_EXPORT int rlisten(int descriptor, int backlog) {
  return with_rsocket(descriptor, [&](Rsocket& socket) { return listen_at(socket, backlog); });
}

WEFT_EXPORT int raccept(int descriptor, sockaddr* address, socklen_t* bytes) {
  return with_rsocket(descriptor,
                      [&](Rsocket& socket) { return accept_from(socket, address, bytes); });
}

WEFT_EXPORT int rconnect(int descriptor, const sockaddr* address, socklen_t bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    const auto peer = to_address(address, bytes);
    if (socket.type == SOCK_STREAM) return connect_to(socket, peer);
    need_datagrams(socket)->connect(datagram_address(address, bytes));
    return 0;
  });
}

WEFT_EXPORT int rshutdown(int descriptor, int how) {
  return with_rsocket(descriptor, [&](Rsocket& socket) { return shut_down(socket, how); });
}

WEFT_EXPORT int rclose(int descriptor) {
  return guarded([&] {
    // Calls that begin from here on fail with EBADF, but the number is not free yet: another thread
    // must not get it while the stream still ends.
    const auto socket = take_rsocket(descriptor);
    if (!socket) return close_repoll(descriptor) ? 0 : fail_with(EBADF);
    forget_descriptor(descriptor);
    if (const auto stream = socket->get_stream()) end_stream(*socket, *stream);
    if (const auto datagrams = socket->get_datagrams()) datagrams->close();
    release_rsocket(descriptor);
    return 0;
  });
}

WEFT_EXPORT int rgetsockname(int descriptor, sockaddr* address, socklen_t* bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    if (!address || !bytes) return fail_with(EFAULT);
    sockaddr_storage none{};
    // An unbound socket has the wildcard address and port 0, as in getsockname(2) of TCP.
    none.ss_family = static_cast<sa_family_t>(socket.family);
    if (const auto datagrams = socket.get_datagrams()) none = datagrams->local().to_sockaddr();
    const auto listener = socket.get_listener();
    const auto stream = socket.get_stream();
    const bool named = stream && stream->state() != stream::State::idle;
    give_address(named      ? local_of(stream->id())
                 : listener ? local_of(listener->id())
                            : none,
                 address, bytes);
    return 0;
  });
}

WEFT_EXPORT int rgetpeername(int descriptor, sockaddr* address, socklen_t* bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    if (!address || !bytes) return fail_with(EFAULT);
    const auto datagrams = socket.get_datagrams();
    if (const auto peer = datagrams ? datagrams->peer() : std::nullopt) {
      give_address(peer->to_sockaddr(), address, bytes);
      return 0;
    }
    const auto stream = socket.get_stream();
    if (!stream || stream->state() != stream::State::connected) return fail_with(ENOTCONN);
    give_address(peer_of(stream->id()), address, bytes);
    return 0;
  });
}

WEFT_EXPORT int rfcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  // An argument that was not passed must not be read.
  const int flags = command == F_SETFL || command == F_SETFD ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    // The flags are those of the rsocket: the eventfd behind the number never blocks.
    switch (command) {
      case F_GETFL:
        return O_RDWR | (socket.nonblocking ? O_NONBLOCK : 0);
      case F_SETFL:
        socket.nonblocking = (flags & O_NONBLOCK) != 0;
        return 0;
      case F_GETFD:
      case F_SETFD:
        return fcntl(descriptor, command, flags);
      default:
        return fail_with(ENOTSUP);
    }
  });
}
