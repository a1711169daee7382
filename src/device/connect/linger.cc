#include "device/connect/linger.h"

#include <array>
#include <cerrno>

#include "device/limits.h"

namespace weft::device {

void Linger::start(Engine& engine, StreamSocket socket, std::vector<std::byte> rest) {
  auto linger = std::make_shared<Linger>(engine, std::move(socket), std::move(rest));
  const std::lock_guard lock(linger->mutex_);
  if (linger->push_rest() && linger->drain()) return linger->finish();
  std::uint32_t events = EPOLLIN;
  if (!linger->rest_.empty()) events |= EPOLLOUT;
  linger->token_ = engine.watch(linger->socket_.fd(), events, linger);
  engine.call_at(sys::now_ns() + limits::linger_ns, linger);
}

// True once everything has gone and the write side is closed, or cannot go any more.
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
  socket_.shutdown_write();
  return true;
}

// True at the end of the peer's stream.
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

void Linger::on_deadline() {
  const std::lock_guard lock(mutex_);
  if (socket_.valid()) finish();
}

void Linger::finish() {
  if (token_ != 0) engine_.unwatch(token_);
  token_ = 0;
  socket_.close();
}

}  // namespace weft::device
