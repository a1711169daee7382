#include "interpose/socket.h"

#include <netinet/in.h>

#include <cerrno>

#include "interpose/address.h"
#include "interpose/listening.h"
#include "interpose/table.h"
#include "weft/error.hpp"

namespace weft::interpose {

Socket::Socket(int family, int type, int& visible)
    : family_(family),
      nonblocking_((type & SOCK_NONBLOCK) != 0),
      manner_{family, {}},
      shadow_(type & (SOCK_NONBLOCK | SOCK_CLOEXEC), visible) {}

// The kernel says what may be a socket.
std::shared_ptr<Socket> Socket::make(int family, int type, int protocol, int& visible) {
  auto made = std::make_shared<Socket>(family, type, visible);
  Descriptor owned(visible);  // until nothing can fail
  Descriptor kernel(next::socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol));
  if (!kernel.valid()) throw Error(errno, "no socket");
  made->kernel_ = out_of_the_way(std::move(kernel));
  visible = owned.release();
  return made;
}

std::shared_ptr<Socket> Socket::accepted(Manner manner, stream::Stream stream, int type,
                                         int& visible) {
  auto made = std::make_shared<Socket>(manner.family, type, visible);
  made->manner_ = std::move(manner);
  made->stream_ = std::make_shared<stream::Stream>(std::move(stream));
  for (const Setting& setting : made->manner_.settings) made->apply(setting);
  made->peer_name_ = from_text(made->stream_->peer_address(), made->family_);
  made->phase_ = Phase::connected;
  made->success_told_ = true;
  made->shadow_.set_writable(false);
  made->stream_->watch(made.get());
  return made;
}

std::shared_ptr<stream::Stream> Socket::stream() const {
  const std::lock_guard lock(mutex_);
  return stream_;
}

std::shared_ptr<Listening> Socket::listening() const {
  const std::lock_guard lock(mutex_);
  return listening_;
}

// --- What the kernel is shown --------------------------------------------------------------------

// With the lock of the stream.
void Socket::changed(const stream::Stream::Readiness& now) noexcept {
  if (phase_ == Phase::connecting) {
    if (!now.settled) return;
    if (now.over && !now.ended && now.arrived_bytes == 0) {
      if (auto self = weak_from_this().lock()) start_thread([self] { self->look_again(); });
      return;
    }
    phase_ = Phase::connected;
  }
  show(now);
}

void Socket::show(const stream::Stream::Readiness& now) {
  const std::lock_guard lock(levels_);
  const bool more = now.arrived_bytes != arrived_bytes_;
  arrived_bytes_ = now.arrived_bytes;
  ended_ = now.ended;
  if (now.over && !now.ended) {
    shadow_.fail();
    return;
  }
  if (more && edges_) shadow_.renew_readable();
  shadow_.set_readable(now.readable || read_shut_);
  shadow_.set_writable(now.settled && now.writable);
  if (now.ended && write_shut_) {
    shadow_.hang_up();
  } else if (now.ended) {
    shadow_.end();
  }
}

void Socket::show_requests(bool any, bool another) {
  const std::lock_guard lock(levels_);
  if (any && another && edges_) shadow_.renew_readable();
  shadow_.set_readable(any);
}

// --- Names ---------------------------------------------------------------------------------------

sockaddr_storage Socket::local_name() const {
  const std::lock_guard lock(mutex_);
  if (local_name_) return *local_name_;
  if (stream_) return from_text(stream_->local_address(), family_);
  return kernel_.valid() ? name_of(kernel_.get()) : no_address(family_);
}

sockaddr_storage Socket::peer_name() const {
  if (phase_ != Phase::connected && phase_ != Phase::piped) throw Error(ENOTCONN, "not connected");
  const std::lock_guard lock(mutex_);
  if (peer_name_) return *peer_name_;
  return from_text(stream_->peer_address(), family_);
}

// --- The end -------------------------------------------------------------------------------------

void Socket::shut_down(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) throw Error(EINVAL, "shut down what?");
  if (phase_ == Phase::listening) {
    listening()->close();
    if (next::shutdown(kernel(), how) != 0) throw Error(errno, "cannot shut the listener down");
    return;
  }
  const auto stream = this->stream();
  if (!stream || phase_ != Phase::connected) throw Error(ENOTCONN, "not connected");
  if (how != SHUT_RD && !write_shut_.exchange(true)) stream->finish();
  if (how != SHUT_WR) read_shut_ = true;
  const std::lock_guard lock(levels_);
  if (read_shut_) {
    shadow_.set_readable(true);
    shadow_.end();
  }
  if (write_shut_ && (ended_ || read_shut_)) shadow_.hang_up();
}

void Socket::let_go() {
  if (--descriptors_ > 0) return;
  const auto stream = this->stream();
  if (stream && phase_ != Phase::piped && phase_ != Phase::lost) {
    stream->unwatch(this);
    close_later(stream, phase_ == Phase::connecting || resets_at_close());
  }
  if (const auto listening = this->listening(); listening && phase_ == Phase::listening) {
    listening->close();
  }
  const std::scoped_lock lock(mutex_, levels_);
  listening_.reset();
  shadow_.release();
}

}  // namespace weft::interpose
