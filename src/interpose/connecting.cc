// bind(2) and connect(2), and what follows where the peer is no stream.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "interpose/address.h"
#include "interpose/listening.h"
#include "interpose/relay.h"
#include "interpose/socket.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

constexpr int plain_connect_ms = 5000;

std::string text_of(const stream::Address& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return (six ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

// A port that only lingers in TIME_WAIT may be had again, one that somebody has bound may not.
int bind_kernel(int fd, const KernelName& name) {
  const auto bind = [&] {
    return next::bind(fd, reinterpret_cast<const sockaddr*>(&name.address), name.bytes);
  };
  int reuse = 0;
  socklen_t bytes = sizeof reuse;
  next::getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, &bytes);
  if (bind() == 0) return 0;
  if (errno != EADDRINUSE || reuse != 0) return -1;
  for (const int value : {1, 0}) {
    next::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
    if (value == 1) reuse = bind();
  }
  if (reuse != 0) errno = EADDRINUSE;
  return reuse;
}

// A TCP connection, or none.
Descriptor connect_plainly(const stream::Address& peer) {
  const auto name =
      from_text(text_of(peer), peer.host.find(':') != std::string::npos ? AF_INET6 : AF_INET);
  Descriptor made = out_of_the_way(
      Descriptor(next::socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!made.valid()) return {};
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  if (next::connect(made.get(), address, size_of(name)) != 0) {
    if (errno != EINPROGRESS) return {};
    pollfd entry{made.get(), POLLOUT, 0};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (next::poll(&entry, 1, plain_connect_ms) <= 0 ||
        next::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
      return {};
    }
  }
  next::fcntl(made.get(), F_SETFL, nullptr);  // the relay waits
  return made;
}

// Whether that may be what a peer makes of us that knows no streams.
bool may_be_plain(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EPROTO || error == ETIMEDOUT ||
         error == EHOSTUNREACH;
}

}  // namespace

void Socket::bind(const sockaddr* address, socklen_t bytes) {
  const int fd = kernel();
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::fresh) throw Error(EINVAL, "the socket has an address already");
  if (fd < 0 || bind_kernel(fd, for_kernel(address, bytes)) != 0) {
    throw Error(errno, "cannot have the address");
  }
  phase_ = Phase::bound;
}

void Socket::listen(int backlog) {
  const int fd = kernel();
  const std::lock_guard lock(mutex_);
  const bool may = phase_ == Phase::fresh || phase_ == Phase::bound || phase_ == Phase::listening;
  if (!may) throw Error(EINVAL, "cannot listen");
  // Only if the connections have it from here, their TIME_WAIT does not keep the next listener from
  // the port.
  constexpr int reuse = 1;
  next::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  if (fd < 0 || next::listen(fd, backlog) != 0) throw Error(errno, "cannot listen");
  if (phase_ == Phase::listening) return;
  set_blocking(fd, false);
  listening_ = Listening::start(fd, backlog, options_of(manner_), weak_from_this());
  phase_ = Phase::listening;
}

int Socket::connect(const stream::Address& peer) {
  switch (phase_) {
    case Phase::listening:
      return EISCONN;
    case Phase::connected:
    case Phase::piped:  // who did not wait may ask once
      return success_told_.exchange(true) ? EISCONN : 0;
    case Phase::lost:
      return EOPNOTSUPP;
    case Phase::connecting:
      if (nonblocking_) return EALREADY;
      break;
    case Phase::fresh:
    case Phase::bound:
      start(peer);
      if (nonblocking_) return EINPROGRESS;
      break;
  }
  return await_connection();
}

void Socket::start(const stream::Address& peer) {
  const auto stream = std::make_shared<stream::Stream>(options_of(manner()));
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::bound) {
      const auto name = name_of(kernel_.get());
      kernel_.reset();  // the address is the stream's now
      stream->bind(to_address(reinterpret_cast<const sockaddr*>(&name), size_of(name), false));
    }
  }
  Listening::before_connecting(peer.port);
  stream->start_connecting(peer);
  awaited_ = !nonblocking_;
  {
    const std::scoped_lock lock(mutex_, levels_);
    if (!shadow_.usable()) throw Error(ECONNABORTED, "the socket has failed to connect before");
    shadow_.set_writable(false);
    stream_ = stream;
    peer_ = peer;
    phase_ = Phase::connecting;
  }
  stream->watch(this);
}

int Socket::await_connection() {
  while (true) {
    if (phase_ == Phase::connected || phase_ == Phase::piped) {
      success_told_ = true;
      return 0;
    }
    if (phase_ != Phase::connecting) return take_error();
    const int failed = shadow_.await_writable(send_timeout_ms_);
    if (failed != EAGAIN) continue;
    awaited_ = false;
    return EINPROGRESS;
  }
}

// --- What has gone wrong -------------------------------------------------------------------------

void Socket::look_again() {
  const auto stream = this->stream();
  stream->unwatch(this);
  int error = ECONNRESET;
  try {
    if (stream->await_connected(Deadline::now())) {  // and lost at once
      phase_ = Phase::connected;
      stream->watch(this);
      return;
    }
  } catch (const Error& reason) {
    error = reason.error_number();
  }
  stream::Address peer;
  {
    const std::lock_guard lock(mutex_);
    peer = peer_;
    stream_.reset();
  }
  if (!may_be_plain(error)) return could_not_connect(error);
  Descriptor plain = connect_plainly(peer);
  if (!plain.valid()) return could_not_connect(error);
  if (may_fall_back() && fall_back(peer, std::move(plain))) return;
  say(text_of(peer) +
      " speaks plain TCP and no streams; run its program with --sockets as well, or this one "
      "with --sockets=fallback");
  could_not_connect(EPROTONOSUPPORT);
}

void Socket::could_not_connect(int error) {
  error_ = error;
  const std::lock_guard lock(levels_);
  phase_ = Phase::fresh;
  if (awaited_) {
    shadow_.set_writable(true);  // it may be tried again
  } else {
    shadow_.fail();
  }
}

bool Socket::fall_back(const stream::Address& peer, Descriptor plain) {
  const std::scoped_lock lock(mutex_, levels_);
  if (!shadow_.usable()) return false;
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  next::getsockname(plain.get(), reinterpret_cast<sockaddr*>(&name), &bytes);
  local_name_ = name;
  bytes = sizeof name;
  next::getpeername(plain.get(), reinterpret_cast<sockaddr*>(&name), &bytes);
  peer_name_ = name;
  say(text_of(peer) + " speaks plain TCP: connected without RDMA (--sockets=fallback)");
  phase_ = Phase::piped;
  Descriptor pipe = shadow_.become_pipe();
  pipe_fd_ = pipe.get();
  relay(std::move(pipe), std::move(plain));
  return true;
}

}  // namespace weft::interpose
