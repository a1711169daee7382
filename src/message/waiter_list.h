// WaiterList: the coroutines that wait for a condition of one connection or listener.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "weft/message/coroutine.hpp"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class WaiterList {
 public:
  // `ready` must not resume or add a waiter. Drops those that no longer wait where they may be half
  // of all: a program that waits in vain for ever must not need more and more memory.
  void add(std::shared_ptr<Suspension> suspension, std::function<bool()> ready);
  // Resumes every waiter whose condition is now true, and drops those that no longer wait. The
  // coroutines run inside of this call, and may add waiters.
  void resume_ready();
  [[nodiscard]] bool empty() const { return waiters_.empty(); }
  // Drops all waiters without resuming them.
  void clear();

 private:
  struct Waiter {
    std::shared_ptr<Suspension> suspension;
    std::function<bool()> ready;
  };
  void drop_ended();

  std::vector<Waiter> waiters_;
  std::size_t drop_at_ = 0;  // the size from which on add() looks for waiters that have ended
};

}  // namespace weft::message::detail
