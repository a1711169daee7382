#include "interpose/socket.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <cerrno>

#include "interpose/accept_queue.h"
#include "interpose/address.h"
#include "interpose/late_bells.h"
#include "interpose/process.h"
#include "interpose/table.h"
#include "weft/error.hpp"

namespace weft::interpose {

Socket::Socket(InheritedOptions options, int type)
    : nonblocking_((type & SOCK_NONBLOCK) != 0), kernel_(std::move(options)) {}

Socket::Socket(InheritedOptions options, HiddenPair pair, int type)
    : nonblocking_((type & SOCK_NONBLOCK) != 0),
      kernel_(std::move(options)),
      visible_(std::move(pair)) {}

// The kernel makes a socket with the program's own arguments, so that it decides what is valid.
std::shared_ptr<Socket> Socket::create(int family, int type, int protocol, int& visible) {
  Descriptor kernel(next::socket(family, type, protocol));
  if (!kernel.valid()) throw Error(errno, "no socket");
  auto made = std::make_shared<Socket>(InheritedOptions{family, {}}, type);
  visible = kernel.release();
  made->kernel_.borrow(visible);
  return made;
}

std::shared_ptr<Socket> Socket::of_kernel_socket(int visible) {
  const int flags = next::fcntl(visible, F_GETFL, nullptr);
  auto made = std::make_shared<Socket>(inherited_options_of(visible), flags & O_NONBLOCK);
  if (port_of(local_name_of(visible)) != 0) made->phase_ = Phase::bound;
  made->kernel_.borrow(visible);
  return made;
}

// The new file keeps the close-on-exec flag that the number had.
void Socket::open_visible() {
  const std::scoped_lock lock(mutex_, visible_mutex_);
  if (!kernel_.is_borrowed()) return;
  const int fd = kernel_.fd();
  Descriptor kernel = copy_high(fd);
  int visible = -1;
  VisibleSocket made(SOCK_CLOEXEC | (nonblocking_ ? SOCK_NONBLOCK : 0), visible);
  const Descriptor low(visible);
  const int flags = next::fcntl(fd, F_GETFD, nullptr);
  if (flags < 0 || next::dup3(visible, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0) {
    throw Error(errno, "no descriptors for a socket");
  }
  kernel_.adopt(std::move(kernel));
  visible_ = std::move(made);
  for (const SocketOption& option : kernel_.options().values) apply(option);
}

bool Socket::may_become_kernels() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::fresh && kernel_.is_borrowed();
}

void Socket::note_epoll_set() {
  open_visible();
  in_epoll_set_ = true;
}

// watch() reports its readiness to changed() before the program knows the socket.
std::shared_ptr<Socket> Socket::accepted(InheritedOptions inherited, AcceptedStream client,
                                         int type) {
  auto made = std::make_shared<Socket>(std::move(inherited), std::move(client.pair), type);
  made->stream_ = std::make_shared<stream::Stream>(std::move(client.stream));
  made->counted_.emplace();
  for (const SocketOption& option : made->kernel_.options().values) made->apply(option);
  made->names_.peer = parse_address(made->stream_->peer_address(), made->kernel_.family());
  made->phase_ = Phase::connected;
  made->connect_.reported = true;
  made->stream_->watch(made.get());
  return made;
}

std::shared_ptr<stream::Stream> Socket::stream() const {
  const std::lock_guard lock(mutex_);
  return stream_;
}

std::shared_ptr<stream::Stream> Socket::listable_stream() const {
  if (phase_ != Phase::connected || uses_edges_ || read_shut_ || write_shut_ || descriptors_ != 1 ||
      (member_.ready & SetMember::over) != 0) {
    return nullptr;
  }
  return stream();
}

bool Socket::shows_bytes() {
  const std::lock_guard lock(visible_mutex_);
  return visible_.has_unread();
}

std::shared_ptr<AcceptQueue> Socket::accept_queue() const {
  const std::lock_guard lock(mutex_);
  return accept_queue_;
}

// --- What the program sees -----------------------------------------------------------------------

// A stream that is over before any byte has arrived, and not by the peer's end, may not have been
// connected at all. To find out can take long, which is not for a thread that holds the stream's
// lock.
void Socket::changed(const stream::Stream::Readiness& now) noexcept {
  if (phase_ == Phase::connecting) {
    if (!now.settled) return;
    if (now.over && !now.ended && now.arrived_bytes == 0) {
      resolve_in_background();
      return;
    }
    if (connect_.relay != Relay::none && relay_in_background()) return;
    phase_ = Phase::connected;
  }
  show(now);
}

// Called with the stream's lock held, so no exception may leave.
void Socket::resolve_in_background() noexcept {
  const auto self = weak_from_this().lock();
  if (!self) return;
  try {
    start_thread([self] { self->resolve_failed_connect(); });
  } catch (const std::exception&) {
    fail_connect(ENOMEM);
  }
}

// A failure is final and hides everything else. read_shut_ makes the socket readable: receiving
// returns 0 at once.
void Socket::show(const stream::Stream::Readiness& now) {
  const std::lock_guard lock(visible_mutex_);
  // A bell is an edge itself.
  const bool more = now.arrived_bytes != shown_.arrived_bytes && now.bells == shown_.bells;
  visible_.count_bells(now.bells - shown_.bells);
  const bool ended = wants_end_ ? now.ended : now.drained;
  shown_ = {.arrived_bytes = now.arrived_bytes, .bells = now.bells, .ended = ended};
  if (now.over && !now.ended) {
    member_.ready = SetMember::over;
    visible_.show_failure();
    return;
  }
  if (more && uses_edges_) visible_.repeat_readable();
  const bool readable = now.readable || read_shut_;
  const bool writable = now.settled && now.writable;
  const bool over = ended || now.over || read_shut_ || write_shut_;
  member_.ready = (readable ? std::uint32_t{EPOLLIN} : 0) |
                  (writable ? std::uint32_t{EPOLLOUT} : 0) | (over ? SetMember::over : 0);
  if (readable && member_.listed) {
    visible_.note_readable();
  } else {
    visible_.set_readable(readable);
  }
  if (visible_.awaits_bells()) note_late_bell(weak_from_this());
  visible_.set_writable(writable);
  if (ended && write_shut_) {
    visible_.show_hang_up();
  } else if (ended) {
    visible_.show_end();
  }
}

void Socket::drop_late_bells() {
  const std::lock_guard lock(visible_mutex_);
  visible_.drop_late_bells();
  if (visible_.awaits_bells()) note_late_bell(weak_from_this());
}

// The stream asks for wake-ups anew.
void Socket::use_edges() {
  if (uses_edges_.exchange(true)) return;
  leave_set();
  if (const auto stream = this->stream()) (void)stream->readiness();
}

void Socket::want_end() {
  if (wants_end_.exchange(true)) return;
  if (const auto stream = this->stream()) (void)stream->report_again();
}

void Socket::show_clients(bool any, bool another) {
  const std::lock_guard lock(visible_mutex_);
  if (any && another && uses_edges_) visible_.repeat_readable();
  visible_.set_readable(any);
}

bool Socket::show_kernel_queue(bool shown) {
  const std::lock_guard lock(visible_mutex_);
  if (!listener_file_ || (shown && !nonblocking_)) return false;
  listener_file_->show_kernel_queue(shown);
  return true;
}

// --- Names ---------------------------------------------------------------------------------------

sockaddr_storage Socket::local_name() const {
  const std::lock_guard lock(mutex_);
  if (names_.local) return *names_.local;
  if (stream_) return parse_address(stream_->local_address(), kernel_.family());
  return kernel_.is_open() ? local_name_of(kernel_.fd()) : empty_address(kernel_.family());
}

sockaddr_storage Socket::peer_name() const {
  if (phase_ != Phase::connected && phase_ != Phase::relayed)
    throw Error(ENOTCONN, "not connected");
  const std::lock_guard lock(mutex_);
  if (names_.peer) return *names_.peer;
  return parse_address(stream_->peer_address(), kernel_.family());
}

bool Socket::has_ended() {
  const std::lock_guard lock(visible_mutex_);
  return shown_.ended;
}

bool Socket::is_lost() const {
  const auto stream = this->stream();
  return stream && phase_ == Phase::connected && stream->state() == stream::State::failed;
}

// --- The end -------------------------------------------------------------------------------------

// shutdown(2) of a listener wakes the threads that wait in accept(2), which then fail with EINVAL.
void Socket::shut_down(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
    throw Error(EINVAL, "shutdown() with an unknown direction");
  if (phase_ == Phase::listening) {
    accept_queue()->close();
    if (next::shutdown(kernel_fd(), how) != 0) throw Error(errno, "cannot shut down the listener");
    return;
  }
  const auto stream = this->stream();
  // A connection that both sides have ended, or that was lost, is none any more.
  const bool over = is_lost() || (write_shut_ && how != SHUT_RD && has_ended());
  if (!stream || phase_ != Phase::connected || over) throw Error(ENOTCONN, "not connected");
  leave_set();
  if (how != SHUT_RD && !write_shut_.exchange(true)) stream->finish();
  if (how != SHUT_WR) read_shut_ = true;
  const std::lock_guard lock(visible_mutex_);
  if (read_shut_) {
    visible_.set_readable(true);
    visible_.show_end();
  }
  if (write_shut_ && (shown_.ended || read_shut_)) visible_.show_hang_up();
}

// Only the side that has connected chooses how it connects the next time.
void Socket::note_end() {
  stream::Address peer;
  {
    const std::lock_guard lock(mutex_);
    peer = connect_.peer;
  }
  if (peer.port != 0) Destinations::instance().note_end(peer, transfers_);
}

// A relay keeps its stream, and a child does not end what its parent continues.
void Socket::remove_descriptor() {
  if (--descriptors_ > 0) return;
  if (StreamSet* const set = member_.set) set->remove(*this);
  const auto stream = this->stream();
  if (stream && phase_ == Phase::connected) note_end();
  if (stream && phase_ != Phase::relayed && phase_ != Phase::abandoned) {
    stream->unwatch(this);
    close_in_background(stream,
                        phase_ == Phase::connecting || resets_at_close(inherited_options()));
  }
  if (const auto queue = this->accept_queue(); queue && phase_ == Phase::listening) {
    queue->close();
  }
  const std::scoped_lock lock(mutex_, visible_mutex_);
  accept_queue_.reset();
  kernel_.give_back();
  listener_file_.reset();
  visible_.release();
}

}  // namespace weft::interpose
