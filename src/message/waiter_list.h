// WaiterList: the coroutines that wait for a condition of one connection.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "weft/message/coroutine.hpp"

namespace weft::message::detail {

// Not thread-safe: belongs to the loop's thread.
class WaiterList {
 public:
  // `ready` must not resume or add a waiter.
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
  std::vector<Waiter> waiters_;
};

}  // namespace weft::message::detail
