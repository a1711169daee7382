// Threads and coroutines that wait for outcomes of one completion queue form a FIFO; only the first
// polls, because a completion channel event wakes an arbitrary waiter, and each event is delivered
// once.
#pragma once

#include <list>
#include <mutex>
#include <optional>

#include "verbs/waiter.h"

namespace weft::verbs::detail {

class WaitQueueEntry;

// The waiters of one completion queue. Thread-safe.
class WaitQueue {
 public:
  // Wakes all waiters but the first, which polls itself: what another thread has polled may be for
  // one of them.
  void wake_others() noexcept;

 private:
  friend class WaitQueueEntry;
  std::mutex lock_;
  std::list<WaitQueueEntry*> waiting_;  // the first one polls; an empty list allocates nothing
};

// A waiter in the queue, from construction to destruction. When the first one leaves, the next is
// woken.
class WaitQueueEntry {
 public:
  explicit WaitQueueEntry(WaitQueue& turns);
  ~WaitQueueEntry();
  WaitQueueEntry(const WaitQueueEntry&) = delete;
  WaitQueueEntry& operator=(const WaitQueueEntry&) = delete;

  [[nodiscard]] bool is_first() const;
  // Readable when this entry has become the first, or after wake(). Valid only if it was not the
  // first when it joined.
  [[nodiscard]] int fd() const { return flag_->fd(); }
  // Wakes this waiter: another thread has polled, or this entry has become the first.
  void wake() noexcept;
  // Ends the effect of wake(). To be called before the waiter looks at its condition.
  void rest() noexcept;

 private:
  WaitQueue& wait_queues_;
  std::optional<EventFlag> flag_;
};

}  // namespace weft::verbs::detail
