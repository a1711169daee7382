#include "device/connect/bare_stream.h"

#include <cerrno>
#include <utility>

#include "device/connect/linger.h"

namespace weft::device {
namespace {

// A message without a receive ends the stream.
iwarp::Connection::Options without_queues(iwarp::Connection::Options parameters,
                                          const StreamSocket& socket) {
  parameters.receiver_not_ready.hold_bytes = 0;
  parameters.mulpdu_bytes = socket.mulpdu_bytes(parameters.send_markers);
  return parameters;
}

}  // namespace

// The ends of connections that could leave TCP stay on it where this end closes the channel beside
// it, or is on a Unix socket where there was no TCP: see local/local_channel.h, local/pair_end.h.
std::shared_ptr<BareStream> BareStream::start(Device& device, StreamSocket socket,
                                              const iwarp::Connection::Options& parameters,
                                              std::weak_ptr<ConnectionObserver> observer) {
  if (socket.has_pair()) {
    PairEnd end = std::move(socket.pair());
    socket = StreamSocket(end.accept_as_stream(), socket.ends(), nullptr, false);
  }
  socket.take_channel().close();
  if (!parameters.initiator) device.local_listeners().take(socket.ends()).close();
  if (!socket.valid()) return nullptr;
  auto made = std::make_shared<BareStream>(device.engine(), std::move(socket), parameters,
                                           std::move(observer));
  return made->begin() ? made : nullptr;
}

BareStream::BareStream(Engine& engine, StreamSocket socket, iwarp::Connection::Options parameters,
                       std::weak_ptr<ConnectionObserver> observer)
    : engine_(engine),
      socket_(std::move(socket)),
      connection_(without_queues(std::move(parameters), socket_), static_cast<iwarp::Host&>(*this)),
      observer_(std::move(observer)) {}

bool BareStream::begin() {
  std::unique_lock lock(mutex_);
  token_ = engine_.watch(socket_.fd(), EPOLLIN, shared_from_this());
  if (token_ == 0) {
    socket_.close();
    return false;
  }
  connection_.on_time(sys::now_ns());
  receive_available();
  settle(lock);
  return true;
}

void BareStream::disconnect() {
  std::unique_lock lock(mutex_);
  if (!socket_.valid()) return;
  connection_.close();
  settle(lock);
}

void BareStream::abandon_after_fork() {
  token_ = 0;
  socket_.disown();
}

void BareStream::on_ready(std::uint32_t /*events*/) {
  std::unique_lock lock(mutex_);
  if (!socket_.valid()) return;
  receive_available();
  settle(lock);
}

// The only clock of such a stream is that of the ready-to-receive message.
void BareStream::on_deadline() {
  std::unique_lock lock(mutex_);
  if (!socket_.valid()) return;
  connection_.on_time(sys::now_ns());
  settle(lock);
}

// One read for each turn: a peer that has nothing to send here sends little.
void BareStream::receive_available() {
  planned_.clear();
  connection_.plan_receive(planned_);
  if (planned_.empty()) return;
  const auto got = socket_.receive(planned_);
  if (got == -EAGAIN || got == -EINTR) return;
  // No request of this side depends on what has arrived.
  if (got <= 0) return connection_.peer_closed(0);
  connection_.received(static_cast<std::size_t>(got));
  if (connection_.clock_needed()) connection_.on_time(sys::now_ns());
}

void BareStream::send_available() {
  bool full = false;
  while (!full) {
    const auto pieces = connection_.plan_send();
    if (pieces.empty()) break;
    const auto sent = socket_.send(pieces);
    if (sent == -EINTR) continue;
    full = sent == -EAGAIN;
    if (sent < 0 && !full) return connection_.peer_closed(0);
    if (sent > 0) connection_.sent(static_cast<std::size_t>(sent));
  }
  engine_.change(token_, full ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void BareStream::on_end(iwarp::EndReason reason) {
  ended_ = true;
  reason_ = reason;
}

// Gives the socket up, with what it did not take yet.
void BareStream::finish() {
  if (token_ != 0) engine_.unwatch(std::exchange(token_, 0));
  if (connection_.end_reason() == iwarp::EndReason::peer_closed) return socket_.close();
  std::vector<std::byte> rest;
  for (const auto& piece : connection_.plan_send()) {
    const auto* at = static_cast<const std::byte*>(piece.iov_base);
    rest.insert(rest.end(), at, at + piece.iov_len);
  }
  Linger::start(engine_, std::move(socket_), std::move(rest));
}

// The end of each function that may have changed something. Releases the lock before it notifies
// the observer, which takes locks of its own.
void BareStream::settle(std::unique_lock<std::mutex>& lock) {
  if (!connection_.ended()) send_available();
  if (connection_.ended() && socket_.valid()) finish();
  const std::uint64_t deadline_ns = connection_.deadline_ns();
  if (socket_.valid() && deadline_ns != iwarp::Connection::never_ns) {
    engine_.call_at(deadline_ns, shared_from_this());
  }
  const bool ready = std::exchange(ready_, false);
  const bool ended = std::exchange(ended_, false);
  const iwarp::EndReason reason = reason_;
  lock.unlock();
  const auto observer = observer_.lock();
  if (!observer) return;
  if (ready) observer->on_stream_ready();
  if (ended) observer->on_stream_ended(reason);
}

}  // namespace weft::device
