// Waiting in a coroutine: the counterpart of Waiter for event loops.
#pragma once

#include <coroutine>
#include <optional>

#include "verbs/waiter.h"
#include "weft/executor.hpp"
#include "weft/task.hpp"

namespace weft::verbs::detail {

// Combines the condition's descriptors, the deadline and the stop request into one descriptor, so
// that an executor needs to watch a single descriptor only and knows nothing of deadlines.
class Suspension {
 public:
  Suspension(Executor& executor, Deadline deadline, std::stop_token stop);
  ~Suspension();
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  // The awaitable of until_readable().
  class Awaiter {
   public:
    explicit Awaiter(Suspension& of) : of_(of) {}
    [[nodiscard]] bool await_ready() const { return of_.woken().has_value(); }
    void await_suspend(std::coroutine_handle<> waiting) { of_.suspend(waiting); }
    [[nodiscard]] Woken await_resume() const { return of_.woken().value_or(Woken::ready); }

   private:
    Suspension& of_;
  };
  [[nodiscard]] Awaiter until_readable(const Descriptors& descriptors);
  void forget_descriptors();

 private:
  // The reason to resume; nothing while there is none.
  [[nodiscard]] std::optional<Woken> woken() const;
  void suspend(std::coroutine_handle<> waiting);

  Executor& executor_;
  Deadline deadline_;
  StopFlag stop_;
  std::optional<DescriptorSet> set_;
  Timer timer_;
  Descriptors watched_;
  bool suspended_ = false;
};

// Suspends the coroutine until the condition holds. Both arguments must outlive the task.
[[nodiscard]] Task<Woken> until(Suspension& suspension, Condition& condition);

}  // namespace weft::verbs::detail
