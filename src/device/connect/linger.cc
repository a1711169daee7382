#include "device/connect/linger.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "device/device.h"
#include "device/limits.h"

namespace weft::device {

std::size_t RefusedConnections::most() const {
  return std::max(std::min(most_, sys::descriptor_limit() / limits::refused_share),
                  limits::least_half_open);
}

// Bounded, because any host can cause as many refusals as it likes, and each keeps a descriptor for
// up to a second.
RefusedConnections::Place RefusedConnections::add(const std::shared_ptr<Linger>& linger,
                                                  std::shared_ptr<Linger>& oldest) {
  const std::size_t bound = most();
  const std::lock_guard lock(mutex_);
  // It takes itself off the list; until then it is the newest.
  if (lingering_.size() >= bound) {
    oldest = lingering_.front().lock();
    // Moved to the end and not removed: the place that it knows stays valid (std::list).
    lingering_.splice(lingering_.end(), lingering_, lingering_.begin());
  }
  return lingering_.insert(lingering_.end(), linger);
}

void RefusedConnections::remove(Place place) {
  const std::lock_guard lock(mutex_);
  lingering_.erase(place);
}

std::size_t RefusedConnections::count() {
  const std::lock_guard lock(mutex_);
  return lingering_.size();
}

void Linger::start(Engine& engine, StreamSocket socket, std::vector<std::byte> rest) {
  begin(std::make_shared<Linger>(engine, std::move(socket), std::move(rest)));
}

void Linger::start_refused(Device& device, StreamSocket socket, std::vector<std::byte> rest) {
  auto linger = std::make_shared<Linger>(device.engine(), std::move(socket), std::move(rest));
  std::shared_ptr<Linger> oldest;
  {
    // Before it can end, so that it finds its place then.
    const std::lock_guard lock(linger->mutex_);
    linger->refused_ = &device.refused_connections();
    linger->place_ = linger->refused_->add(linger, oldest);
  }
  begin(linger);
  // Without any lock: two threads may cut off each other's.
  if (!oldest) return;
  ++device.refusals().reset;
  oldest->cut_off();
}

void Linger::begin(const std::shared_ptr<Linger>& linger) {
  Engine& engine = linger->engine_;
  const std::lock_guard lock(linger->mutex_);
  if (!linger->socket_.valid()) return;  // cut off already
  // Ends at once where the socket takes the rest and the peer has closed already; then no alarm is
  // set.
  if (linger->push_rest() && linger->drain()) return linger->finish();
  std::uint32_t events = EPOLLIN;
  if (!linger->rest_.empty()) events |= EPOLLOUT;
  linger->token_ = engine.watch(linger->socket_.fd(), events, linger);
  engine.call_at(sys::now_ns() + limits::linger_ns, linger);
}

// Returns true once everything is sent and the write side is closed, or the connection has failed.
bool Linger::push_rest() {
  while (pushed_ < rest_.size()) {
    const iovec piece{rest_.data() + pushed_, rest_.size() - pushed_};
    const auto sent = socket_.send({&piece, 1});
    if (sent == -EAGAIN) return false;
    if (sent <= 0) break;
    pushed_ += static_cast<std::size_t>(sent);
  }
  if (!rest_.empty() && token_ != 0) engine_.change(token_, EPOLLIN);
  rest_.clear();
  pushed_ = 0;
  // The peer sees the end of the stream only behind the last byte.
  socket_.shutdown_write();
  return true;
}

// True at the end of the peer's stream. What the peer still sends is discarded. Without reading it,
// close() would answer with a reset, which can destroy bytes that the peer has not read yet.
bool Linger::drain() {
  std::array<std::byte, 16384> waste;
  for (int i = 0; i < limits::reads_per_turn; ++i) {
    const iovec piece{waste.data(), waste.size()};
    const auto got = socket_.receive({&piece, 1});
    if (got == -EAGAIN || got == -EINTR) return false;
    if (got <= 0) return true;
  }
  return false;
}

void Linger::on_ready(std::uint32_t /*events*/) {
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return;
  const bool pushed = push_rest();
  if (drain() && pushed) finish();
}

// The peer keeps its side open; the socket is closed without waiting any longer.
void Linger::on_deadline() {
  const std::lock_guard lock(mutex_);
  if (socket_.valid()) finish();
}

// A reset gives the descriptor back at once and leaves nothing behind (TIME_WAIT).
void Linger::cut_off() {
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return;
  if (token_ != 0) engine_.unwatch(token_);
  token_ = 0;
  socket_.abort();
  finish();
}

// Gives up the place in the list first: the descriptor must not be counted after it is closed.
void Linger::finish() {
  if (refused_) refused_->remove(place_);
  refused_ = nullptr;
  if (token_ != 0) engine_.unwatch(token_);
  token_ = 0;
  socket_.close();
}

}  // namespace weft::device
