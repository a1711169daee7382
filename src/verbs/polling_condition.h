// Waiting for completions of one queue by several threads and coroutines: the first of them polls
// for all, see wait_queue.h.
#pragma once

#include "verbs/wait_queue.h"
#include "weft/verbs/completion.hpp"

namespace weft::verbs::detail {

// The queue, its channel and the waiters must outlive the condition. The channel serves this queue
// only.
class PollingCondition : public Condition {
 public:
  PollingCondition(WaitQueue& waiters, const CompletionChannel& channel,
                   const CompletionQueue& queue)
      : channel_(channel), queue_(queue), entry_(waiters) {}

  [[nodiscard]] bool holds() override;
  // Until it is the first, a waiter only waits for its own entry: another one polls the queue.
  [[nodiscard]] Descriptors descriptors() const override {
    return polls() ? Descriptors{channel_.fd()} : Descriptors{entry_.fd()};
  }

 protected:
  // Polls the queue, and returns whether the condition is fulfilled.
  [[nodiscard]] virtual bool poll_and_test() = 0;
  // True if another waiter's polling has fulfilled this condition.
  [[nodiscard]] virtual bool settled() = 0;
  // Whether this waiter is the one that polls, since the last holds().
  [[nodiscard]] bool polls() const { return was_first_; }
  [[nodiscard]] WaitQueueEntry& entry() { return entry_; }
  [[nodiscard]] int entry_fd() const { return entry_.fd(); }

 private:
  const CompletionChannel& channel_;
  const CompletionQueue& queue_;
  WaitQueueEntry entry_;
  bool was_first_ = false;
};

}  // namespace weft::verbs::detail
