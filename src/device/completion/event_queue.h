// A queue of events with a descriptor that programs may poll: readable exactly as long as an event
// is pending. The program controls the descriptor's blocking mode (it may set O_NONBLOCK).
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/ring_queue.h"
#include "device/system.h"

namespace weft::device {

// Thread-safe. The descriptor is an eventfd(2) in semaphore mode with one token per event: a reader
// takes a token first (sys::await_token()) and then its event.
template <typename Event>
class EventQueue {
 public:
  EventQueue() : fd_(sys::event_fd(true)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }

  void push(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    count_.store(events_.size(), std::memory_order_seq_cst);
    // Write the token under the lock, so that withdraw() finds it together with the event.
    const std::uint64_t one = 1;
    sys::write(fd_.get(), &one, sizeof one);
  }

  // Without the lock. Another thread may hold the token of the event.
  [[nodiscard]] bool has_event() const { return count_.load(std::memory_order_seq_cst) != 0; }

  // Takes the event of a token from sys::await_token(fd()). False only if the event was withdrawn
  // because this call came very late: wait again. Calls `on_taken` under the lock, so the event is
  // always either in the queue or counted by `on_taken`.
  template <typename OnTaken>
  bool take(Event& event, OnTaken on_taken) {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    count_.store(events_.size(), std::memory_order_relaxed);
    on_taken(event);
    taken_.notify_all();
    return true;
  }
  bool take(Event& event) {
    return take(event, [](const Event&) {});
  }

  // Removes and returns the events that `matches` and that were not delivered. If a reader already
  // holds the token of an event, the event counts as delivered: waits until the reader has taken
  // it. Otherwise the reader could find the queue empty and wait on a descriptor that the program
  // closes after destroying the event's object.
  template <typename Predicate>
  std::vector<Event> withdraw(Predicate matches) {
    std::vector<Event> withdrawn;
    std::unique_lock lock(mutex_);
    take_back(matches, withdrawn, true);
    // Limit the wait: the reader's thread may have been cancelled before take().
    const auto end = std::chrono::system_clock::now() + reader_grace;
    taken_.wait_until(lock, end, [&] { return !has_any(matches); });
    take_back(matches, withdrawn, false);
    return withdrawn;
  }

  void abandon_after_fork() { fd_.reset(); }

 private:
  static constexpr auto reader_grace = std::chrono::milliseconds(200);

  template <typename Predicate>
  [[nodiscard]] bool has_any(Predicate matches) const {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (matches(events_[i])) return true;
    }
    return false;
  }

  template <typename Predicate>
  void take_back(Predicate matches, std::vector<Event>& withdrawn, bool with_token) {
    for (std::size_t i = 0; i < events_.size();) {
      std::uint64_t one = 0;
      if (!matches(events_[i])) {
        ++i;
      } else if (with_token && sys::read_nowait(fd_.get(), &one, sizeof one) == -EAGAIN) {
        return;  // readers hold all remaining tokens
      } else {
        withdrawn.push_back(std::move(events_[i]));
        events_.erase(i);
        count_.store(events_.size(), std::memory_order_relaxed);
      }
    }
  }

  sys::Descriptor fd_;
  std::mutex mutex_;
  std::condition_variable taken_;
  RingQueue<Event> events_;
  std::atomic<std::size_t> count_{0};  // of events_
};

}  // namespace weft::device
