// Accepts streams of one listener without blocking for any peer: the listener of the C interface.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/epoll_set.h"
#include "weft/stream.hpp"

namespace weft::c {

// A peer that has asked to connect is accepted at once, and its stream is kept here until it is
// connected: a call whose timeout passes meanwhile loses no peer. Thread-safe.
class StreamAcceptor {
 public:
  StreamAcceptor(stream::Listener listener, std::vector<std::byte> private_data);
  // As close(2) does with connections that were not accepted, the streams are reset.
  ~StreamAcceptor();
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
  // Accepts all peers that have asked to connect.
  void take_requests();
  // The first stream that is connected. Streams whose peers have disconnected are destroyed.
  std::optional<stream::Stream> take_connected();

  stream::Listener listener_;
  std::vector<std::byte> private_data_;
  EpollSet ready_;  // the descriptors of the listener and of the streams in `connecting_`
  std::mutex mutex_;
  std::vector<std::unique_ptr<stream::Stream>> connecting_;
};

}  // namespace weft::c
