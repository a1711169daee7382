// The MPA handshake of the passive side. Functions that change the phase under the lock return a
// Notice, a call to be made after the lock is released, because it leads to the listener and the
// program.
#include "device/connect/inbound_handshake.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "device/connect/linger.h"
#include "device/limits.h"

namespace weft::device {

InboundHandshake::InboundHandshake(Device& device, StreamSocket socket,
                                   const iwarp::HandshakeOptions& options, Arrived requested,
                                   Arrived failed)
    : device_(device),
      socket_(std::move(socket)),
      ends_(socket_.ends()),
      handshake_(options),
      requested_(std::move(requested)),
      failed_(std::move(failed)),
      from_pair_(socket_.has_pair()) {}

// Of a process that runs this code as well, so the frame is whole.
bool InboundHandshake::take_request(Bytes frame) {
  const std::lock_guard lock(mutex_);
  for (Bytes rest = frame; !rest.empty();) {
    const std::size_t part = std::min(handshake_.wanted_bytes(), rest.size());
    if (part == 0) break;
    handshake_.input(rest.first(part));
    rest = rest.subspan(part);
  }
  if (!handshake_.requested()) return false;
  silent_.store(false, std::memory_order_relaxed);
  phase_ = Phase::requested;
  return true;
}

// A client sends its request at once, so it has usually arrived; then nothing is watched. The first
// deadline is for the first byte, because an idle connection would occupy a descriptor.
void InboundHandshake::start(std::uint64_t timeout_ns) {
  on_ready(EPOLLIN);
  Notice notice;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::waiting) return;  // evicted or complete already
    const std::uint64_t now_ns = sys::now_ns();
    const StrangerLimits& limits = device_.settings().strangers;
    end_ns_ = now_ns + limits.handshake_ns.value_or(timeout_ns);
    device_.engine().call_at(std::min(end_ns_, now_ns + limits.first_byte_ns), shared_from_this());
    token_ = device_.engine().watch(socket_.fd(), EPOLLIN, shared_from_this());
    if (token_ == 0) notice = give_up(device_.refusals().out_of_descriptors);
  }
  if (notice) notice();
}

// Closes without a reply; events that are under way find the phase and do nothing.
void InboundHandshake::cancel() {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::done;
  unwatch();
  socket_.close();
}

void InboundHandshake::abandon_after_fork() {
  if (token_ != 0 || socket_.has_pair()) socket_.disown();
  socket_.close();
  token_ = 0;
  phase_ = Phase::done;
}

void InboundHandshake::unwatch() {
  if (token_ != 0) device_.engine().unwatch(token_);
  token_ = 0;
}

void InboundHandshake::on_ready(std::uint32_t /*events*/) {
  Notice notice;
  {
    const std::lock_guard lock(mutex_);
    notice = advance();
  }
  if (notice) notice();
}

void InboundHandshake::on_deadline() {
  Notice notice;
  {
    const std::lock_guard lock(mutex_);
    // Once the request is there it is the application that takes its time.
    if (phase_ != Phase::waiting) return;
    if (silent() || sys::now_ns() >= end_ns_) {
      // A slow client that has begun its request gets the whole time of the handshake.
      notice = give_up(device_.refusals().timed_out);
    } else {
      device_.engine().call_at(end_ns_, shared_from_this());
    }
  }
  if (notice) notice();
}

void InboundHandshake::evict() {
  Notice notice;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::waiting) return;
    // A request that is already in the socket must not be lost to the limit.
    notice = advance();  // what came meanwhile may not have been read yet
    if (phase_ == Phase::waiting) notice = give_up(device_.refusals().evicted);
  }
  if (notice) notice();
}

InboundHandshake::Notice InboundHandshake::advance() {
  if (phase_ == Phase::replying) return send_reply();
  if (phase_ != Phase::waiting || !read_request()) return {};
  // The frame is malformed or the peer has closed. Port scanners close without a byte, so the two
  // are counted apart.
  if (!handshake_.requested()) {
    Refusals& refusals = device_.refusals();
    return give_up(silent() ? refusals.closed : refusals.malformed);
  }
  // Nothing more may come before our reply; and the queue pair reads what comes after it.
  unwatch();
  phase_ = Phase::requested;
  return [self = shared_from_this()] { self->requested_(self); };
}

// True once there is nothing more to wait for.
bool InboundHandshake::read_request() {
  std::array<std::byte, 1024> buffer;
  while (const std::size_t wanted = handshake_.wanted_bytes()) {
    const iovec piece{buffer.data(), std::min(wanted, buffer.size())};
    const auto got = socket_.receive({&piece, 1});
    if (got == -EINTR) continue;
    if (got == -EAGAIN) return false;
    if (got <= 0) {
      // An end of stream and an error have the same consequence here.
      handshake_.input_closed();
      return true;
    }
    // Read by HalfOpen without the lock of this object; a late value only costs the connection its
    // preference.
    silent_.store(false, std::memory_order_relaxed);
    handshake_.input(Bytes(buffer).first(static_cast<std::size_t>(got)));
  }
  return true;
}

InboundHandshake::Notice InboundHandshake::give_up(Refusals::Count& counter) {
  ++counter;
  phase_ = Phase::done;
  unwatch();
  return [self = shared_from_this()] {
    self->failed_(self);  // counted before the peer can see it
    self->cancel();
  };
}

// EINVAL for a second answer, or after cancel(): a request is answered once.
int InboundHandshake::accept(std::uint16_t ird, std::uint16_t ord, Bytes private_data,
                             std::function<void(StreamSocket)> sent) {
  Notice notice;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::requested) return EINVAL;
    // The kernel's drivers notice only here as well that the peer has given up: there is no event
    // for that.
    const bool closed = from_pair_ ? socket_.pair().is_lost() : sys::peer_closed(socket_.fd());
    if (closed) {
      phase_ = Phase::done;
      socket_.close();
      return ECONNRESET;
    }
    handshake_.accept(ird, ord, private_data);
    sent_ = std::move(sent);
    phase_ = Phase::replying;
    notice = send_reply();
  }
  if (notice) notice();
  return 0;
}

InboundHandshake::Notice InboundHandshake::send_reply() {
  if (from_pair_) {
    // The queue pair sends it, together with what both ends share.
    socket_.pair().set_frame(handshake_.output());
    return hand_over();
  }
  while (!handshake_.output().empty()) {
    const Bytes rest = handshake_.output();
    const iovec piece{const_cast<std::byte*>(rest.data()), rest.size()};
    const auto done = socket_.send({&piece, 1});
    if (done == -EINTR) continue;
    if (done == -EAGAIN) {
      if (token_ == 0) {
        token_ = device_.engine().watch(socket_.fd(), EPOLLOUT, shared_from_this());
      }
      return {};
    }
    // `sent` receives an invalid socket then.
    if (done < 0) {
      socket_.close();
      break;
    }
    handshake_.output_done(static_cast<std::size_t>(done));
  }
  return hand_over();
}

InboundHandshake::Notice InboundHandshake::hand_over() {
  phase_ = Phase::done;
  unwatch();
  auto stream = std::make_shared<StreamSocket>(std::move(socket_));
  socket_ = StreamSocket();
  return [sent = std::move(sent_), stream] { sent(std::move(*stream)); };
}

int InboundHandshake::reject(Bytes private_data) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::requested) return EINVAL;
  phase_ = Phase::done;
  handshake_.reject(private_data);
  // Linger sends the reply and waits for the peer to read it: closing at once could reset the
  // connection before.
  const Bytes reply = handshake_.output();
  if (from_pair_) {
    socket_.pair().refuse(reply);
    socket_ = StreamSocket();
    return 0;
  }
  Linger::start_refused(device_, std::move(socket_), {reply.begin(), reply.end()});
  socket_ = StreamSocket();
  return 0;
}

}  // namespace weft::device
