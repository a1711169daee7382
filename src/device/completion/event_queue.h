// A queue of events behind a descriptor that a program may poll: readable exactly as long as an
// event waits. The program owns the descriptor's blocking mode (it may set O_NONBLOCK).
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "device/system.h"

namespace weft::device {

template <typename Event>
class EventQueue {
 public:
  EventQueue() : fd_(sys::event_fd(true)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }

  void push(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    // Under the lock: whoever withdraws the event finds its token.
    const std::uint64_t one = 1;
    sys::write(fd_.get(), &one, sizeof one);
  }

  // For who has just got a token from sys::await_token(fd()). False only where the event of that
  // token was withdrawn because this came very late: wait again. `on_taken` hears of the event
  // before anybody who looks for it in the queue can miss it there.
  template <typename OnTaken>
  bool take(Event& event, OnTaken on_taken) {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    on_taken(event);
    taken_.notify_all();
    return true;
  }
  bool take(Event& event) {
    return take(event, [](const Event&) {});
  }

  // Takes back the events that `matches` and were not delivered. An event whose token a reader has
  // already is as good as delivered: this waits until that reader has taken it. So no reader finds
  // the queue empty and turns to a descriptor that its program closes meanwhile, having destroyed
  // what the event was about.
  template <typename Predicate>
  std::vector<Event> withdraw(Predicate matches) {
    std::vector<Event> withdrawn;
    std::unique_lock lock(mutex_);
    take_back(matches, withdrawn, true);
    // Not for ever: the reader may have been cancelled on its way.
    const auto end = std::chrono::system_clock::now() + reader_grace;
    taken_.wait_until(lock, end, [&] { return std::ranges::none_of(events_, matches); });
    take_back(matches, withdrawn, false);
    return withdrawn;
  }

  void abandon_after_fork() { fd_.reset(); }

 private:
  static constexpr auto reader_grace = std::chrono::milliseconds(200);

  template <typename Predicate>
  void take_back(Predicate matches, std::vector<Event>& withdrawn, bool with_token) {
    for (auto it = events_.begin(); it != events_.end();) {
      std::uint64_t one = 0;
      if (!matches(*it)) {
        ++it;
      } else if (with_token && sys::read_nowait(fd_.get(), &one, sizeof one) == -EAGAIN) {
        return;  // readers have all tokens that there are
      } else {
        withdrawn.push_back(std::move(*it));
        it = events_.erase(it);
      }
    }
  }

  sys::Descriptor fd_;
  std::mutex mutex_;
  std::condition_variable taken_;
  std::deque<Event> events_;
};

}  // namespace weft::device
