// AcceptQueue: the connections that a listener has accepted, and that are not established yet.
// Whichever is established first is returned first, so a peer that is silent keeps no other one
// waiting.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "connection/conditions.h"
#include "connection/core.h"
#include "verbs/accept_limits.h"

namespace weft::connection::detail {

// Thread-safe.
class AcceptQueue {
 public:
  static constexpr std::size_t most = verbs::detail::most_accepted;

  // `requests`: the descriptor of the listener, readable while a request may wait. Throws Error.
  explicit AcceptQueue(int requests);
  AcceptQueue(const AcceptQueue&) = delete;
  AcceptQueue& operator=(const AcceptQueue&) = delete;

  // The connection that was accepted first of those that are established; null if there is none.
  // Those that have failed are destroyed.
  [[nodiscard]] std::unique_ptr<Core> take();
  // Whether add() may be called. Gives up a connection for that, if one has been silent for long.
  [[nodiscard]] bool has_room();
  void add(std::unique_ptr<Core> accepted);
  // Readable when to look again: a connection may be established, or a request wait.
  [[nodiscard]] int fd() const { return watched_.fd(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    std::unique_ptr<Core> core;
    Clock::time_point since = steady_now();
  };

  static bool is_silent(const Entry& entry);
  std::unique_ptr<Core> remove(std::list<Entry>::iterator at);
  void watch_requests(bool watch);

  const int requests_;
  std::mutex mutex_;  // guards what follows
  DescriptorSet watched_;
  Timer silent_;  // watched while requests are not, because there is no room
  bool watches_requests_ = true;
  std::list<Entry> connecting_;  // in the order in which they were accepted
};

}  // namespace weft::connection::detail
