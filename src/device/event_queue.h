// A queue of events behind a descriptor that a program may poll: readable exactly as long as an
// event waits. The program owns the descriptor's blocking mode (it may set O_NONBLOCK).
#pragma once

#include <cerrno>
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

  // For who has just got a token from sys::await_token(fd()). False where the event of that token was
  // withdrawn between the two: wait again. `on_taken` hears of the event before anybody who looks for
  // it in the queue can miss it there.
  template <typename OnTaken>
  bool take(Event& event, OnTaken on_taken) {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    on_taken(event);
    return true;
  }
  bool take(Event& event) {
    return take(event, [](const Event&) {});
  }

  // Takes back the events that `matches`; they were never delivered.
  template <typename Predicate>
  std::vector<Event> withdraw(Predicate matches) {
    std::vector<Event> taken;
    const std::lock_guard lock(mutex_);
    for (auto it = events_.begin(); it != events_.end();) {
      if (!matches(*it)) {
        ++it;
        continue;
      }
      taken.push_back(std::move(*it));
      it = events_.erase(it);
      // A token for this event is there, unless a reader has just taken it; that reader then finds
      // the queue one shorter and waits again. So this must not wait.
      std::uint64_t one = 0;
      sys::read_nowait(fd_.get(), &one, sizeof one);
    }
    return taken;
  }

  void abandon_after_fork() { fd_.reset(); }

 private:
  sys::Descriptor fd_;
  std::mutex mutex_;
  std::deque<Event> events_;
};

}  // namespace weft::device
