#include "c/stream_acceptor.h"

#include <poll.h>

#include <cerrno>
#include <utility>

#include "weft/deadline.hpp"
#include "weft/error.hpp"

namespace weft::c {

using stream::Stream;

namespace {

// Whether this process lacks what a stream needs. accept(2) fails then as well.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

StreamAcceptor::StreamAcceptor(stream::Listener listener, std::vector<std::byte> private_data)
    : listener_(std::move(listener)), private_data_(std::move(private_data)) {
  if (!ready_.valid()) throw Error(-ready_.get(), "no descriptor is left for a listener");
  const int result = ready_.add(listener_.fd(), EPOLLIN, 0);
  if (result < 0) throw Error(-result, "the descriptor of a listener cannot be watched");
}

// A stream that is only destroyed waits until its peer has confirmed the end, which one that is
// silent does not do.
StreamAcceptor::~StreamAcceptor() {
  for (const auto& stream : connecting_) stream->abort();
}

void StreamAcceptor::take_requests() {
  while (auto request = listener_.next(Deadline::now())) {
    try {
      auto made = std::make_unique<Stream>(std::move(*request).accept(private_data_));
      const int result = ready_.add(made->fd(), EPOLLIN, 0);
      if (result < 0) throw Error(-result, "the descriptor of a stream cannot be watched");
      connecting_.push_back(std::move(made));
    } catch (const Error& error) {
      // The request is rejected when it is destroyed. Either this peer has disconnected already,
      // and others may follow, or the next one would fail as well, which the program must know.
      if (is_shortage(error.error_number())) throw;
    }
  }
}

std::optional<Stream> StreamAcceptor::take_connected() {
  for (std::size_t i = 0; i < connecting_.size();) {
    bool connected = false;
    try {
      connected = connecting_[i]->await_connected(Deadline::now());
      if (!connected) {
        ++i;
        continue;
      }
    } catch (const Error&) {
      // The peer has disconnected again.
    }
    ready_.remove(connecting_[i]->fd());
    const auto found = std::move(connecting_[i]);
    connecting_.erase(connecting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (connected) return std::move(*found);
  }
  return std::nullopt;
}

std::optional<Stream> StreamAcceptor::accept(const Deadline& deadline) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      take_requests();
      if (auto found = take_connected()) return found;
    }
    if (deadline.passed()) return std::nullopt;
    // Another thread may take what becomes ready: then this one waits again.
    pollfd entry{.fd = ready_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, deadline.poll_timeout_ms()) < 0 && errno != EINTR)
      throw Error(errno, "a listener cannot wait");
  }
}

std::optional<stream::Request> StreamAcceptor::next(const Deadline& deadline) {
  return listener_.next(deadline);
}

}  // namespace weft::c
