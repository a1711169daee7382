// bind(2), listen(2) and connect(2), and what follows if the peer speaks plain TCP.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "interpose/accept_queue.h"
#include "interpose/address.h"
#include "interpose/destinations.h"
#include "interpose/process.h"
#include "interpose/relay.h"
#include "interpose/relay_name.h"
#include "interpose/socket.h"
#include "interpose/unseen_rings.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// Limits the attempt by plain TCP, which follows an attempt by a stream that has failed.
constexpr int tcp_connect_ms = 5000;
// The same where the peer's host may not have answered at all, as with a listener whose queue is
// full: with the attempt before it about the time after which the kernel's connect(2) times out.
constexpr int tcp_patient_connect_ms = 100'000;
// Then the peer's program is taken for one that speaks plain TCP.
constexpr std::chrono::seconds stream_answer_timeout{10};
// The same for one that seems to be such a program.
constexpr std::chrono::seconds answer_timeout_of_plain{3};

// Binds also to a port that is only in TIME_WAIT, but not to one that another socket has bound.
// SO_REUSEADDR is therefore set for a second attempt alone, unless the program has set it.
int bind_kernel(int fd, const KernelName& name) {
  const auto bind = [&] {
    return next::bind(fd, reinterpret_cast<const sockaddr*>(&name.address), name.bytes);
  };
  int reuse = 0;
  socklen_t bytes = sizeof reuse;
  next::getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, &bytes);
  if (bind() == 0) return 0;
  if (errno != EADDRINUSE || reuse != 0) return -1;
  // The option is removed after the attempt, whatever its result is: the program has not set it.
  for (const int value : {1, 0}) {
    next::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
    if (value == 1) reuse = bind();
  }
  if (reuse != 0) errno = EADDRINUSE;
  return reuse;
}

// The kernel repeats a SYN that was not answered after one second. A listener whose queue is full
// answers none, so an attempt that takes as long says nothing about the program behind it.
constexpr std::chrono::milliseconds least_of_repeated_syn{900};

// Connects by plain TCP and waits for the outcome. Returns no descriptor if that fails.
Descriptor connect_tcp(const stream::Address& peer, int timeout_ms) {
  const auto name = address_of(peer, peer.host.find(':') != std::string::npos ? AF_INET6 : AF_INET);
  Descriptor made = move_high(
      Descriptor(next::socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!made.valid()) return {};
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  if (next::connect(made.get(), address, size_of(name)) != 0) {
    if (errno != EINPROGRESS) return {};
    pollfd entry{made.get(), POLLOUT, 0};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (next::poll(&entry, 1, timeout_ms) <= 0 ||
        next::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
      return {};
    }
  }
  next::fcntl(made.get(), F_SETFL, nullptr);  // the relay's calls block
  return made;
}

// A process that has given up its privileges cannot bind to a port below 1024 again. Then the
// connection has the same address and another port.
void bind_stream(stream::Stream& stream, stream::Address local) {
  try {
    stream.bind(local);
  } catch (const Error& error) {
    if (error.error_number() != EACCES) throw;
    local.port = 0;
    stream.bind(local);
  }
}

// True if a peer that speaks plain TCP may have caused this error: it does not reply to the MPA
// request, resets the connection, or listens at the port number for TCP while streams use another
// port. Without another port, a program that listens a moment later is no such peer.
bool may_be_tcp(int error) {
  if (error == ECONNREFUSED) return port_offset() != 0;
  return error == ECONNRESET || error == EPROTO || error == ETIMEDOUT || error == EHOSTUNREACH;
}

// What the kernel says of the address before it looks at the state of the socket. The port does
// not matter for that.
int address_error(int family, const KernelName& name) {
  const Descriptor probe(next::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  KernelName any_port = name;
  reinterpret_cast<sockaddr_in&>(any_port.address).sin_port = 0;
  const auto* address = reinterpret_cast<const sockaddr*>(&any_port.address);
  return next::bind(probe.get(), address, name.bytes) == 0 ? EINVAL : errno;
}

}  // namespace

void Socket::bind(const sockaddr* address, socklen_t bytes) {
  check_name(address, bytes);
  open_visible();
  const int fd = kernel_fd();
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::fresh) {
    throw Error(address_error(kernel_.family(), to_kernel_name(address, bytes)),
                "the socket is already bound");
  }
  if (fd < 0 || bind_kernel(fd, to_kernel_name(address, bytes)) != 0) {
    throw Error(errno, "cannot bind to the address");
  }
  phase_ = Phase::bound;
}

// Only where the program cannot tell that its descriptor is another file: it has no copy, and no
// epoll set has it.
void Socket::replace_by_listener_file(int fd) {
  const std::lock_guard lock(visible_mutex_);
  if (!may_leave_to_kernel() || descriptors_ != 1 || in_epoll_set_) {
    visible_.set_writable(false);  // as every listener
    return;
  }
  listener_file_.emplace(visible_.copy(), kernel_.fd());
  listener_file_->replace(fd);
}

void Socket::listen(int fd, int backlog) {
  open_visible();
  const int kernel = kernel_fd();
  const std::lock_guard lock(mutex_);
  // listen(2) on a socket without an address binds it to any free port; a second call changes the
  // backlog only.
  const bool may = phase_ == Phase::fresh || phase_ == Phase::bound || phase_ == Phase::listening;
  if (!may) throw Error(EINVAL, "cannot listen");
  // Accepted connections inherit SO_REUSEADDR from here. Without it their TIME_WAIT would keep the
  // next listener from the port.
  constexpr int reuse = 1;
  next::setsockopt(kernel, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  if (kernel < 0 || next::listen(kernel, backlog) != 0) throw Error(errno, "cannot listen");
  if (phase_ == Phase::listening) return;
  set_blocking(kernel, false);
  replace_by_listener_file(fd);
  accept_queue_ =
      AcceptQueue::start(kernel, backlog, stream_options(kernel_.options()), weak_from_this());
  phase_ = Phase::listening;
}

int Socket::connect(const stream::Address& peer) {
  switch (phase_) {
    case Phase::listening:
      return EISCONN;
    case Phase::connected:
    case Phase::relayed:  // a non-blocking connect(2) may be repeated once to learn of success
      return connect_.reported.exchange(true) ? EISCONN : 0;
    case Phase::abandoned:
      return EOPNOTSUPP;
    case Phase::connecting:
      if (nonblocking_) return EALREADY;
      break;
    case Phase::fresh:
    case Phase::bound:
      start_connecting(peer);
      if (nonblocking_) return EINPROGRESS;
      break;
  }
  return await_connection();
}

// The phase changes before watch(), because the stream may report to changed() at once.
void Socket::start_connecting(const stream::Address& peer) {
  open_visible();
  stream::Options options = stream_options(inherited_options());
  options.bell = visible_.bell();
  options.refused_time = std::chrono::milliseconds(0);  // as TCP
  options.answer_timeout =
      Destinations::instance().seems_plain(peer) ? answer_timeout_of_plain : stream_answer_timeout;
  const auto stream = std::make_shared<stream::Stream>(options);
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::bound) {
      const auto name = local_name_of(kernel_.fd());
      // The stream binds to its address, also where another process has the kernel socket, too.
      constexpr int on = 1;
      next::setsockopt(kernel_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      kernel_.close();
      bind_stream(*stream,
                  to_address(reinterpret_cast<const sockaddr*>(&name), size_of(name), false));
    }
  }
  AcceptQueue::before_connect(peer.port);
  stream->start_connecting(peer);
  connect_.blocks = !nonblocking_;
  connect_.relay = has_ring() ? Relay::wanted : Relay::none;
  {
    const std::scoped_lock lock(mutex_, visible_mutex_);
    if (!visible_.usable()) throw Error(ECONNABORTED, "the socket has failed to connect before");
    visible_.set_writable(false);
    stream_ = stream;
    counted_.emplace();
    connect_.peer = peer;
    phase_ = Phase::connecting;
  }
  stream->watch(this);
}

// SO_SNDTIMEO limits a blocking connect(2), as with TCP: after it the attempt goes on, and the
// caller has to wait for the descriptor.
int Socket::await_connection() {
  while (true) {
    if (phase_ == Phase::connected || phase_ == Phase::relayed) {
      connect_.reported = true;
      return 0;
    }
    if (phase_ != Phase::connecting) return connect_.error.exchange(0);
    const int failed = visible_.await_writable(timeouts_.send_ms);
    if (failed != EAGAIN) continue;
    connect_.blocks = false;
    return EINPROGRESS;
  }
}

// The stream's own limits end this. The visible socket is not writable meanwhile.
void Socket::await_outcome() const {
  while (phase_ == Phase::connecting) (void)visible_.await_writable(-1);
}

// --- A stream that was not connected -------------------------------------------------------------

// Either the stream was connected and lost at once, or the peer may speak plain TCP: then connect
// by TCP, and report to the user what to change.
void Socket::resolve_failed_connect() {
  auto stream = this->stream();
  stream->unwatch(this);
  int error = ECONNRESET;
  try {
    if (stream->await_connected(Deadline::now())) {  // and was lost at once
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
    peer = connect_.peer;
    stream_.reset();
    counted_.reset();
  }
  stream.reset();  // it has a copy of the bell, which would keep the visible socket from failing
  if (!may_be_tcp(error)) return fail_connect(error);
  // The attempt shows whether anything listens there. Only in that case does the user get advice.
  const auto begun = std::chrono::steady_clock::now();
  const bool timed_out = error == ETIMEDOUT;
  Descriptor plain = connect_tcp(peer, timed_out ? tcp_patient_connect_ms : tcp_connect_ms);
  const bool was_full = std::chrono::steady_clock::now() - begun >= least_of_repeated_syn;
  if (!plain.valid()) return fail_connect(error);
  // It has room now.
  if (timed_out && was_full) {
    plain.reset();
    const bool blocks = connect_.blocks;
    try {
      start_connecting(peer);
      connect_.blocks = blocks;
    } catch (const Error&) {
      fail_connect(error);
    }
    return;
  }
  if (tcp_fallback_allowed()) {
    // Before the program learns that it is connected, and may connect again.
    Destinations::instance().note_plain(peer);
    if (fall_back_to_tcp(peer, std::move(plain))) return;
  }
  print_notice(
      to_text(peer) +
      " speaks plain TCP and no streams; run its program with --sockets as well, or this one "
      "with --sockets=fallback");
  fail_connect(EPROTONOSUPPORT);
}

// A blocking connect(2) returns the error itself, and the socket can be connected again. A
// non-blocking one ends with EPOLLERR and SO_ERROR, as with TCP.
void Socket::fail_connect(int error) {
  connect_.error = error;
  const std::lock_guard lock(visible_mutex_);
  phase_ = Phase::fresh;
  if (connect_.blocks) {
    visible_.set_writable(true);
  } else {
    visible_.show_failure();
  }
}

// False if the program has closed the socket meanwhile.
bool Socket::fall_back_to_tcp(const stream::Address& peer, Descriptor plain) {
  const std::scoped_lock lock(mutex_, visible_mutex_);
  if (!visible_.usable()) return false;
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  next::getsockname(plain.get(), reinterpret_cast<sockaddr*>(&name), &bytes);
  names_.local = name;
  bytes = sizeof name;
  next::getpeername(plain.get(), reinterpret_cast<sockaddr*>(&name), &bytes);
  names_.peer = name;
  print_plain(peer);
  phase_ = Phase::relayed;
  Descriptor pipe = visible_.start_relay();
  relay_fd_ = pipe.get();
  name_relay(relay_fd_, {*names_.local, *names_.peer});
  relay(std::move(pipe), std::move(plain));
  return true;
}

}  // namespace weft::interpose
