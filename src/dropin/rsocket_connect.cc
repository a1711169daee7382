// rsocket(7): binds, listens, accepts, connects, and shuts directions down.
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "dropin/export.h"
#include "dropin/rsocket.h"

namespace {

using namespace weft::dropin;
using weft::Deadline;
using weft::Error;
namespace stream = weft::stream;

stream::Address to_address(const sockaddr_storage& address) {
  return weft::dropin::to_address(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// --- Listening -----------------------------------------------------------------------------------

// A stream socket becomes a listener at once, so that getsockname returns its port. make_stream()
// takes the address over.
int bind_to(Rsocket& socket, const stream::Address& address) {
  const std::lock_guard lock(socket.mutex);
  if (socket.type == SOCK_DGRAM) {
    if (socket.datagrams) return fail_with(EINVAL);
    socket.datagrams = DatagramSocket::open(address, socket.options);
    socket.notify_locked();
    return 0;
  }
  if (socket.listener || socket.stream || socket.bound) return fail_with(EINVAL);
  socket.listener = std::make_shared<RsocketListener>(address, socket.options);
  socket.bound = local_of(socket.listener->id());
  return 0;
}

int listen_at(Rsocket& socket, int backlog) {
  const std::lock_guard lock(socket.mutex);
  if (socket.type == SOCK_DGRAM) return fail_with(EOPNOTSUPP);
  if (socket.stream) return fail_with(EINVAL);
  if (socket.listener && socket.listener->is_listening()) return 0;
  // Without an address, listen(2) takes a free port of all addresses as well.
  if (!socket.listener) {
    const auto address = socket.bound ? to_address(*socket.bound) : any_address(socket);
    socket.listener = std::make_shared<RsocketListener>(address, socket.options);
  }
  // listen(2) takes a negative number for the largest.
  socket.listener->listen(backlog < 0 ? 0 : std::max(backlog, 1));
  return 0;
}

// The threads that wait for clients get EINVAL, as from Linux, and the port is closed.
void stop_listening(Rsocket& socket, RsocketListener& listener) {
  listener.end(EINVAL);
  const std::lock_guard lock(socket.mutex);
  if (socket.listener.get() == &listener) socket.listener.reset();
  socket.notify_locked();
}

// --- Accepting -----------------------------------------------------------------------------------

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

// As Linux does: accepted sockets inherit options such as sizes, but not O_NONBLOCK.
std::shared_ptr<Rsocket> make_accepted(Rsocket& listening) {
  auto made = std::make_shared<Rsocket>(listening.family, SOCK_STREAM, false);
  made->accepted = true;
  {
    const std::lock_guard lock(listening.mutex);
    made->options = listening.options;
    made->settings = listening.settings;
  }
  made->options.keepalive = made->keepalive();
  return made;
}

// A client that there is no descriptor for waits on, as with accept(2). Throws Error.
int accept_client(Rsocket& socket, RsocketListener& listener, RsocketListener::Client client,
                  sockaddr* address, socklen_t* bytes) {
  std::optional<RsocketNumber> number;
  try {
    number.emplace();
  } catch (const Error&) {
    listener.put_back(std::move(client));
    throw;
  }
  const auto made = make_accepted(socket);
  made->stream =
      std::make_shared<stream::Stream>(std::move(client.request).accept({}, made->options));
  give_address(named_by(socket, peer_of(made->stream->id())), address, bytes);
  return number->give_to(made);
}

// A client that has disconnected is skipped. If rpoll() has reported it, the program expects that
// the call returns, so that it does not wait for another one.
int accept_from(Rsocket& socket, sockaddr* address, socklen_t* bytes) {
  if (socket.type == SOCK_DGRAM) return fail_with(EOPNOTSUPP);
  const auto listener = socket.get_listener();
  if (!listener || !listener->is_listening()) return fail_with(EINVAL);
  bool lost = false;
  while (true) {
    auto client = listener->next(lost ? Deadline::now() : socket.deadline(0));
    if (!client) return fail_with(lost && !socket.nonblocking ? ECONNABORTED : EAGAIN);
    const bool reported = client->reported;
    try {
      return accept_client(socket, *listener, std::move(*client), address, bytes);
    } catch (const Error& error) {
      if (is_of_this_side(error)) throw;
      lost = lost || reported;
    }
  }
}

// --- Connecting ----------------------------------------------------------------------------------

// Another thread may end the attempt by rshutdown(), which is ECONNRESET on Linux; by rclose() it
// is EBADF.
int await_connected(Rsocket& socket, stream::Stream& stream) {
  try {
    (void)stream.await_connected(Deadline::never());
    return 0;
  } catch (const Error& error) {
    socket.error_reported = true;
    if (error.error_number() != ECANCELED || stream.state() == stream::State::closed) throw;
    return fail_with(ECONNRESET);
  }
}

// connect(2) for a socket that has a stream already. Nothing: its attempt has failed, and the
// program knows that, so another one may begin. Throws Error.
std::optional<int> connect_again(Rsocket& socket, stream::Stream& stream) {
  switch (stream.state()) {
    case stream::State::idle:  // another thread is about to begin
    case stream::State::connecting:
      if (socket.nonblocking) return fail_with(EALREADY);
      return await_connected(socket, stream);
    case stream::State::failed:
      break;
    default:
      return fail_with(EISCONN);
  }
  try {
    (void)stream.await_connected(Deadline::now());
    return fail_with(EISCONN);  // it was connected, and is lost
  } catch (const Error&) {
    if (!socket.error_reported.exchange(true)) throw;
    return std::nullopt;
  }
}

// Stored before it connects, so that a call in another thread finds it: connect_again(). Null if
// another thread has begun an attempt. `failed` is the stream of the last attempt, whose address is
// free once it is destroyed.
std::shared_ptr<stream::Stream> make_stream(Rsocket& socket,
                                            std::shared_ptr<stream::Stream> failed) {
  const std::lock_guard lock(socket.mutex);
  if (socket.stream != failed) return nullptr;
  socket.stream.reset();
  failed.reset();
  socket.options.keepalive = socket.keepalive();
  auto made = std::make_shared<stream::Stream>(socket.options);
  if (socket.bound) {
    socket.listener.reset();  // the stream binds to its address
    made->bind(to_address(*socket.bound));
  }
  socket.error_reported = false;
  socket.stream = made;
  return made;
}

// An attempt that could not begin leaves the socket as it was.
void drop_stream(Rsocket& socket, const std::shared_ptr<stream::Stream>& stream) {
  const std::lock_guard lock(socket.mutex);
  if (socket.stream == stream) socket.stream.reset();
}

bool is_listening(const Rsocket& socket) {
  const auto listener = socket.get_listener();
  return listener && listener->is_listening();
}

// Nothing here may hold the listener of a bound socket, whose address the stream takes.
int connect_to(Rsocket& socket, const stream::Address& peer) {
  if (is_listening(socket)) return fail_with(EOPNOTSUPP);
  auto existing = socket.get_stream();
  if (existing) {
    if (const auto result = connect_again(socket, *existing)) return *result;
  }
  const auto stream = make_stream(socket, std::move(existing));
  if (!stream) return fail_with(EALREADY);
  try {
    // The lock is free here, because other calls on the socket need it.
    stream->start_connecting(peer);
  } catch (...) {
    drop_stream(socket, stream);
    throw;
  }
  if (socket.nonblocking) return fail_with(EINPROGRESS);
  return await_connected(socket, *stream);
}

// --- Shutting down -------------------------------------------------------------------------------

// The peer receives the end behind all bytes that were sent. A peer that has ended the connection
// itself receives nothing more, which is no error of shutdown(2).
void finish(Rsocket& socket, stream::Stream& stream) {
  try {
    stream.finish();
  } catch (const Error& error) {
    if (error.error_number() != ENOTCONN || !stream.readiness().ended) throw;
  }
  socket.write_shut = true;
}

// Linux ends an attempt to connect, whatever direction is asked for. The socket is then as before
// it, and SO_ERROR has nothing to report.
void end_attempt(Rsocket& socket, const std::shared_ptr<stream::Stream>& stream) {
  stream->abort();
  drop_stream(socket, stream);
}

// SHUT_RD makes receives return 0 behind what has arrived: the peer is not notified.
int shut_down(Rsocket& socket, int how) {
  if (socket.type == SOCK_DGRAM) return fail_with(EOPNOTSUPP);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail_with(EINVAL);
  const auto listener = socket.get_listener();
  if (listener && listener->is_listening()) {
    if (how != SHUT_WR) stop_listening(socket, *listener);
    return 0;
  }
  const auto stream = socket.get_stream();
  if (!stream) return fail_with(ENOTCONN);
  if (!socket.accepted && stream->state() == stream::State::connecting) {
    end_attempt(socket, stream);
    socket.notify();
    return 0;
  }
  if (how != SHUT_WR) {
    socket.read_shut = true;
    stream->stop_receiving();
  }
  if (how != SHUT_RD) finish(socket, *stream);
  socket.notify();  // POLLHUP may be due
  return 0;
}

}  // namespace

WEFT_EXPORT int rbind(int descriptor, const sockaddr* address, socklen_t bytes) {
  return with_rsocket(descriptor, [&](Rsocket& socket) {
    return bind_to(socket, weft::dropin::to_address(address, bytes));
  });
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
    const auto peer = weft::dropin::to_address(address, bytes);
    if (socket.type == SOCK_STREAM) return connect_to(socket, peer);
    need_datagrams(socket)->connect(datagram_address(address, bytes));
    return 0;
  });
}

WEFT_EXPORT int rshutdown(int descriptor, int how) {
  return with_rsocket(descriptor, [&](Rsocket& socket) { return shut_down(socket, how); });
}
