// rsocket(7): creates, names and closes sockets over RDMA. Each is a stream, a listener for
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
namespace stream = weft::stream;

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
  } else if (lingering.l_onoff && lingering.l_linger < 0) {
    stream.close(Deadline::never());  // Linux takes it for a very long time
  } else if (lingering.l_onoff) {
    stream.close(std::chrono::seconds(lingering.l_linger));
  } else {
    stream.close(stream.options().linger);
  }
}

// An unbound socket has the wildcard address and port 0, as in getsockname(2) of TCP.
sockaddr_storage name_of(const Rsocket& socket) {
  sockaddr_storage none{};
  none.ss_family = static_cast<sa_family_t>(socket.family);
  if (const auto datagrams = socket.get_datagrams()) return datagrams->local().to_sockaddr();
  const auto stream = socket.get_stream();
  if (stream && stream->state() != stream::State::idle) return local_of(stream->id());
  if (const auto listener = socket.get_listener()) return local_of(listener->id());
  const std::lock_guard lock(socket.mutex);
  return socket.bound.value_or(none);
}

// A socket of raccept() has its peer at once, though the stream waits for the peer's last message.
bool has_peer(const Rsocket& socket, const stream::Stream& stream) {
  const auto state = stream.state();
  return state == stream::State::connected ||
         (socket.accepted && state == stream::State::connecting);
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
    auto socket = std::make_shared<Rsocket>(domain, kind, (type & SOCK_NONBLOCK) != 0);
    return RsocketNumber().give_to(std::move(socket));
  });
}

WEFT_EXPORT int rclose(int descriptor) {
  return guarded([&] {
    // Calls that begin from here on fail with EBADF, but the number is not free yet: another thread
    // must not get it while the stream still ends.
    const auto socket = take_rsocket(descriptor);
    if (!socket) return close_repoll(descriptor) ? 0 : fail_with(EBADF);
    forget_descriptor(descriptor);
    // Calls of other threads that wait for a client or an event return.
    if (const auto listener = socket->get_listener()) listener->end(EBADF);
    socket->notify();
    if (const auto stream = socket->get_stream()) end_stream(*socket, *stream);
    if (const auto datagrams = socket->get_datagrams()) datagrams->close();
    release_rsocket(descriptor);
    return 0;
  });
}

WEFT_EXPORT int rgetsockname(int descriptor, sockaddr* address, socklen_t* bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    if (!address || !bytes) return fail_with(EFAULT);
    give_address(named_by(socket, name_of(socket)), address, bytes);
    return 0;
  });
}

WEFT_EXPORT int rgetpeername(int descriptor, sockaddr* address, socklen_t* bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    if (!address || !bytes) return fail_with(EFAULT);
    const auto datagrams = socket.get_datagrams();
    if (const auto peer = datagrams ? datagrams->peer() : std::nullopt) {
      give_address(named_by(socket, peer->to_sockaddr()), address, bytes);
      return 0;
    }
    const auto stream = socket.get_stream();
    if (!stream || !has_peer(socket, *stream)) return fail_with(ENOTCONN);
    give_address(named_by(socket, peer_of(stream->id())), address, bytes);
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
