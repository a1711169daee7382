// A socket whose bytes the kernel carries, and what becomes of sockets at fork(2).
#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "interpose/accept_queue.h"
#include "interpose/process.h"
#include "interpose/relay.h"
#include "interpose/relay_name.h"
#include "interpose/shared_listener.h"
#include "interpose/socket.h"
#include "interpose/table.h"
#include "weft/error.hpp"

namespace weft::interpose {

// Whether the visible socket has ended although there are bytes to receive, which a relay could not
// put into it any more: see want_end().
bool Socket::shows_end_before(const stream::Stream::Readiness& now) {
  const std::lock_guard lock(visible_mutex_);
  return shown_.ended && !now.drained;
}

// The names are fixed first: afterwards the stream belongs to the relay.
bool Socket::start_relay() {
  if (phase_ == Phase::relayed) return true;
  if (phase_ != Phase::connected) return false;
  const auto stream = this->stream();
  leave_set();
  stream->unwatch(this);  // so that the bell is not rung any more
  const auto now = stream->readiness();
  if (shows_end_before(now)) {
    stream->watch(this);
    return false;
  }
  const std::uint64_t bells = now.bells;
  const auto local = local_name();
  const auto peer = peer_name();
  const std::scoped_lock lock(mutex_, visible_mutex_);
  if (!visible_.usable()) return false;
  names_.local = local;
  names_.peer = peer;
  phase_ = Phase::relayed;
  visible_.count_bells(bells - std::exchange(shown_.bells, bells));
  Descriptor pipe = visible_.start_relay();
  relay_fd_ = pipe.get();
  name_relay(relay_fd_, {local, peer});
  relay(std::move(pipe), stream);
  return true;
}

// Called with the stream's lock held, with which no relay can start, and so no exception may leave.
bool Socket::relay_in_background() noexcept {
  if (connect_.relay.exchange(Relay::starting) == Relay::starting) return true;
  try {
    const auto self = weak_from_this().lock();
    if (self) start_thread([self] { self->begin_as_relay(); });
    return self != nullptr;
  } catch (const std::exception&) {
    connect_.relay = Relay::none;
    return false;
  }
}

void Socket::begin_as_relay() {
  const auto stream = this->stream();
  if (!stream) return;  // the program has closed the socket meanwhile
  stream->unwatch(this);
  connect_.relay = Relay::none;
  phase_ = Phase::connected;
  bool relayed = false;
  try {
    relayed = start_relay();
  } catch (const Error&) {
    // The stream reports why.
  }
  if (relayed) return;
  stream->watch(this);
  if (descriptors_ <= 0) stream->unwatch(this);  // it was closed before it was watched again
}

// A file that an epoll set has leaves it here: programs pass such sockets before they wait for
// them.
int Socket::descriptor_to_pass(int fd) {
  await_outcome();
  if (start_relay()) return fd;
  switch (phase_) {
    case Phase::listening:
      share_listener();
      return kernel_fd();
    case Phase::fresh:
    case Phase::bound:
      if (!may_become_kernels()) {
        set_blocking(kernel_fd(), !nonblocking_);
        replace_with_kernel_socket(fd);
      }
      forget(fd);
      return fd;
    default:
      throw Error(EOPNOTSUPP, "the socket cannot be passed to another process");
  }
}

// Programs put other files at a number before they execute another program.
bool Socket::is_visible_file(int fd) {
  const std::lock_guard lock(visible_mutex_);
  return listener_file_ ? listener_file_->is_file_of(fd) : is_same_file(visible_.copy(), fd);
}

bool Socket::has_kernel_socket_behind(int fd) {
  const bool unconnected =
      phase_ == Phase::listening || phase_ == Phase::bound || phase_ == Phase::fresh;
  {
    const std::lock_guard lock(mutex_);
    if (!unconnected || kernel_.is_borrowed() || !kernel_.is_open()) return false;
  }
  return is_visible_file(fd);
}

// A program whose execve(2) fails goes on with the kernel socket.
bool Socket::pass_to_program(int fd) {
  const bool listens = phase_ == Phase::listening;
  if (!listens && phase_ != Phase::bound && phase_ != Phase::fresh) return false;
  {
    const std::lock_guard lock(mutex_);
    if (kernel_.is_borrowed()) return true;
  }
  if (!has_kernel_socket_behind(fd)) return false;
  const bool own = owns_table();
  if (listens && own) share_listener();
  if (listens && !own) accept_queue()->pass(!nonblocking_);
  if (!listens) set_blocking(kernel_fd(), !nonblocking_);
  replace_with_kernel_socket(fd);
  if (!listens && own) forget(fd);
  return true;
}

// Of a socket that only is bound, this process has its own file again afterwards, and may listen.
bool Socket::lend_to_program(int fd) {
  if (!has_kernel_socket_behind(fd)) return false;
  if (phase_ == Phase::listening) {
    share_listener();
  } else {
    set_blocking(kernel_fd(), !nonblocking_);
  }
  replace_with_kernel_socket(fd);
  return true;
}

void Socket::prepare_fork() {
  start_relay();
  if (phase_ == Phase::listening) share_listener();
}

// The other process will accept from the kernel socket itself. So that socket gets the program's
// O_NONBLOCK, and returns no silent clients, for which accept(2) would have to wait.
void Socket::share_listener() {
  accept_queue()->share();
  defer_silent_clients(kernel_fd());
  set_listener_blocking(kernel_fd(), !nonblocking_);
}

// Only a shared kernel socket follows: the child waits in it. Otherwise it stays non-blocking, for
// AcceptQueue.
void Socket::set_nonblocking(bool nonblocking) {
  nonblocking_ = nonblocking;
  const auto queue = this->accept_queue();
  if (queue && queue->is_shared()) set_listener_blocking(kernel_fd(), !nonblocking);
  if (queue && !nonblocking) queue->stop_accepting_directly();
}

// The new file keeps the close-on-exec flag that the number had.
void Socket::replace_with_kernel_socket(int fd) const {
  const bool closes = (next::fcntl(fd, F_GETFD, nullptr) & FD_CLOEXEC) != 0;
  next::dup3(kernel_.fd(), fd, closes ? O_CLOEXEC : 0);
}

// Leaks the stream and the queue on purpose: their destructors would close connections that the
// parent goes on with.
void Socket::abandon_in_child() {
  // Another thread may have held them.
  std::construct_at(&mutex_);
  std::construct_at(&visible_mutex_);
  new std::shared_ptr<stream::Stream>(std::move(stream_));
  new std::shared_ptr<AcceptQueue>(std::move(accept_queue_));
  switch (phase_) {
    case Phase::relayed:
      next::close(relay_fd_);
      return;
    case Phase::listening:
      kernel_.close();
      listener_file_.reset();
      visible_.release();
      return;
    case Phase::connecting:
    case Phase::connected:  // it could not be relayed
      phase_ = Phase::abandoned;
      return;
    default:
      return;
  }
}

}  // namespace weft::interpose
