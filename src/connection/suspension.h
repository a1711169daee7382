// A coroutine that waits: as a thread does, but in an event loop.
#pragma once

#include <coroutine>
#include <optional>

#include "connection/waiting.h"
#include "weft/executor.hpp"
#include "weft/task.hpp"

namespace weft::connection::detail {

// One descriptor that an executor watches: readable when there is something to look at, at the
// deadline, or when a stop is requested. So an executor needs to know of neither.
class Suspension {
 public:
  Suspension(Executor& executor, Deadline deadline, std::stop_token stop);
  ~Suspension();
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  // What until_readable() gives to co_await.
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
  // Nothing while there is nothing to wake for.
  [[nodiscard]] std::optional<Woken> woken() const;
  void suspend(std::coroutine_handle<> waiting);

  Executor& executor_;
  Deadline deadline_;
  StopFlag stop_;
  std::optional<DescriptorSet> set_;
  Timer timer_;
  Descriptors watched_;
  bool waits_ = false;
};

// Until it holds. Both outlive the task.
[[nodiscard]] Task<Woken> until(Suspension& suspension, Condition& condition);

}  // namespace weft::connection::detail
