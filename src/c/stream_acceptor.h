// Accepts streams of one listener without blocking for any peer: the listener of the C interface.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "base/epoll_set.h"
#include "stream/accept_queue.h"
#include "weft/stream.hpp"

namespace weft::c {

// A peer that has asked to connect is accepted at once, and its stream is kept here until it is
// connected: a call whose timeout passes meanwhile loses no peer. Thread-safe.
class StreamAcceptor {
 public:
  StreamAcceptor(stream::Listener listener, std::vector<std::byte> private_data);
  StreamAcceptor(const StreamAcceptor&) = delete;
  StreamAcceptor& operator=(const StreamAcceptor&) = delete;

  // Waits for the next stream that is connected; empty if the deadline has passed.
  std::optional<stream::Stream> accept(const Deadline& deadline);
  // Waits for the next request, and leaves the decision to the caller; empty at the deadline.
  std::optional<stream::Request> next(const Deadline& deadline);
  // Readable while accept() may have something to do.
  [[nodiscard]] int fd() const { return ready_.get(); }
  [[nodiscard]] stream::Listener& listener() { return listener_; }
  // What is sent to each peer that is accepted.
  [[nodiscard]] const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  // Accepts the peers that have asked to connect, as far as there is room.
  void take_requests();
  void watch_what_is_needed();

  stream::Listener listener_;
  std::vector<std::byte> private_data_;
  stream::detail::AcceptQueue connecting_;
  std::mutex mutex_;  // guards what follows
  EpollSet ready_;
  verbs::detail::Descriptors watched_;  // in `ready_`
};

}  // namespace weft::c
