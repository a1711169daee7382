#include "c/stream_acceptor.h"

#include <poll.h>

#include <cerrno>
#include <utility>

#include "verbs/lost_peer.h"
#include "weft/deadline.hpp"
#include "weft/error.hpp"

namespace weft::c {

using stream::Stream;

StreamAcceptor::StreamAcceptor(stream::Listener listener, std::vector<std::byte> private_data)
    : listener_(std::move(listener)), private_data_(std::move(private_data)) {
  if (!ready_.valid()) throw Error(-ready_.get(), "no descriptor is left for a listener");
  watch_what_is_needed();
}

void StreamAcceptor::take_requests() {
  while (connecting_.has_room()) {
    auto request = listener_.next(Deadline::now());
    if (!request) return;
    try {
      connecting_.add(std::move(*request).accept(private_data_));
    } catch (const Error& error) {
      // The request is rejected when it is destroyed.
      if (!verbs::detail::is_lost_peer(error.error_number())) throw;
    }
  }
}

// The requests are not watched while there is no room, so that no program looks again and again.
void StreamAcceptor::watch_what_is_needed() {
  const auto needed = connecting_.descriptors(listener_.fd());
  if (needed == watched_) return;
  for (const int fd : watched_.all()) ready_.remove(fd);
  watched_ = {};
  for (const int fd : needed.all()) {
    const int result = ready_.add(fd, EPOLLIN, 0);
    if (result < 0) throw Error(-result, "the descriptor of a listener cannot be watched");
  }
  watched_ = needed;
}

std::optional<Stream> StreamAcceptor::accept(const Deadline& deadline) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      auto found = connecting_.take();
      if (!found) take_requests();
      if (!found) found = connecting_.take();
      watch_what_is_needed();
      if (found) return found;
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
