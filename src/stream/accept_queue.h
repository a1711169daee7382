// AcceptQueue: the streams that a listener has accepted, and that are not connected yet. Whichever
// is connected first is returned first, so a peer that is silent keeps no other one waiting.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "stream/fork_handler.h"
#include "verbs/accept_limits.h"
#include "verbs/conditions.h"
#include "verbs/waiter.h"
#include "weft/stream/stream.hpp"

namespace weft::stream::detail {

// Thread-safe.
class AcceptQueue {
 public:
  static constexpr std::size_t most = verbs::detail::most_accepted;

  AcceptQueue() = default;  // throws Error
  ~AcceptQueue();
  AcceptQueue(const AcceptQueue&) = delete;
  AcceptQueue& operator=(const AcceptQueue&) = delete;

  // The stream that was connected first, if there is one.
  [[nodiscard]] std::optional<Stream> take();
  // Whether add() may be called. Gives up a stream for that, if one has been silent for long.
  [[nodiscard]] bool has_room();
  void add(Stream stream);
  // What to wait for until the next take(). `requests`: readable while has_room() may be asked for.
  [[nodiscard]] verbs::detail::Descriptors descriptors(int requests);

 private:
  using Clock = std::chrono::steady_clock;

  // Raises the flag once the stream is connected, or has failed.
  struct Watch final : Stream::Watcher {
    explicit Watch(verbs::detail::EventFlag& to_raise) : flag(to_raise) {}
    void changed(const Stream::Readiness& now) noexcept override {
      if (now.settled) flag.raise();
    }
    [[nodiscard]] bool needs_every_arrival() const noexcept override { return false; }

    verbs::detail::EventFlag& flag;
  };
  struct Entry {
    Entry(Stream accepted, verbs::detail::EventFlag& flag)
        : stream(std::move(accepted)), watch(flag) {}
    Stream stream;
    Watch watch;
    Clock::time_point since = steady_now();
  };

  [[nodiscard]] Stream remove(std::list<Entry>::iterator at);

  std::mutex mutex_;  // guards what follows
  verbs::detail::EventFlag settled_;
  verbs::detail::Timer silent_;  // set while there is no room
  std::list<Entry> connecting_;  // in the order in which they were accepted
  ForkHandler fork_handler_{this, [](void* self) noexcept {
                              std::construct_at(&static_cast<AcceptQueue*>(self)->mutex_);
                            }};
};

}  // namespace weft::stream::detail
