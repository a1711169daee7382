#include "dropin/rsocket_listener.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "stream/stream_thread.h"

namespace weft::dropin {

// In a child of fork(2) the port and the clients are the parent's: they are left where they are.
// The event descriptor would be common to both, and what the child writes would wake the parent.
RsocketListener::RsocketListener(const stream::Address& address, const stream::Options& options)
    : listener_(address, options), fork_handler_(this, [](void* self) noexcept {
        auto& listener = *static_cast<RsocketListener*>(self);
        std::construct_at(&listener.mutex_);
        std::construct_at(&listener.waiting_);
        listener.error_ = ENODEV;
        if (listener.waiting_fd_) listener.waiting_fd_.emplace();
      }) {}

void RsocketListener::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  if (!waiting_fd_) waiting_fd_.emplace();
  if (!waiting_fd_->valid()) {
    const int error = errno;
    waiting_fd_.reset();
    throw Error(error, "no descriptor for a listener");
  }
  listener_.listen(backlog);
  listening_ = true;
}

// With the lock held.
std::optional<RsocketListener::Client> RsocketListener::take() {
  if (waiting_.empty()) {
    auto request = listener_.next(Deadline::now());
    if (!request) return std::nullopt;
    return Client{std::move(*request)};
  }
  std::optional<Client> client(std::move(waiting_.front()));
  waiting_.pop_front();
  if (waiting_.empty()) waiting_fd_->drain();
  return client;
}

std::optional<RsocketListener::Client> RsocketListener::next(const Deadline& deadline) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (error_ != 0) throw Error(error_, "the rsocket listens no more");
      if (auto client = take()) return client;
    }
    // Without the lock, so that other threads can use the listener meanwhile.
    if (!await(deadline)) return std::nullopt;
  }
}

// False at the deadline. Goes on after signals, as the other calls of rsockets do.
bool RsocketListener::await(const Deadline& deadline) const {
  std::array<pollfd, 2> entries{{{requests_fd(), POLLIN, 0}, {waiting_fd(), POLLIN, 0}}};
  while (!deadline.passed()) {
    const int ready = stream::detail::wait(entries, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw Error(errno, "cannot wait for clients");
  }
  return false;
}

void RsocketListener::put_back(Client client) {
  const std::lock_guard lock(mutex_);
  waiting_.push_front(std::move(client));
  waiting_fd_->signal();
}

bool RsocketListener::has_client() {
  const std::lock_guard lock(mutex_);
  if (error_ != 0) return false;
  try {
    if (waiting_.empty()) {
      auto client = take();
      if (!client) return false;
      waiting_.push_back(std::move(*client));
      waiting_fd_->signal();  // for threads that wait in next()
    }
    waiting_.front().reported = true;
  } catch (const Error&) {
    // raccept() returns the error.
  }
  return true;
}

void RsocketListener::end(int error) {
  const std::lock_guard lock(mutex_);
  error_ = error;
  if (waiting_fd_) waiting_fd_->signal();
}

}  // namespace weft::dropin
