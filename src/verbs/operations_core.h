// OperationsCore: the completion queue of Operations, and the table of the requests under way.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "verbs/polling_condition.h"
#include "verbs/state.h"
#include "weft/verbs/operations.hpp"

namespace weft::verbs::detail {

// A posted request. `completion` is written once, before `settled`.
struct OperationRecord {
  std::weak_ptr<QueuePairState> queue_pair;  // expired: the device has dropped the request
  KeptSlice slice;
  std::optional<Completion> completion;
  std::atomic<bool> settled{false};
};

// Thread-safe. Operations and AsyncOperations share it.
class OperationsCore {
 public:
  OperationsCore(const Context& context, int entries);
  // See Operations.
  ~OperationsCore();
  OperationsCore(const OperationsCore&) = delete;
  OperationsCore& operator=(const OperationsCore&) = delete;

  [[nodiscard]] const CompletionChannel& channel() const { return channel_; }
  [[nodiscard]] const CompletionQueue& queue() const { return queue_; }
  [[nodiscard]] WaitQueue& waiters() { return waiters_; }

  // Adds a request to the table. Returns the wr_id to post with; nothing if the completion queue
  // could overflow.
  [[nodiscard]] std::optional<std::uint64_t> add(const std::shared_ptr<OperationRecord>& record);
  // Takes a request that could not be posted out of the table.
  void remove(std::uint64_t id);
  // Polls the queue, and settles what has completed.
  std::size_t poll();
  [[nodiscard]] std::size_t under_way();
  [[nodiscard]] std::optional<Completion> take_other();
  // Grows with each request that is settled, so that a waiter sees that there is room again.
  [[nodiscard]] std::uint64_t settled_count() const { return settled_count_; }

 private:
  using Kept = std::vector<KeptSlice>;
  // Under the lock. The slices are put aside, because freeing them calls the device.
  void settle(const Completion& completion, Kept& freed);
  void drain();
  void drop_what_cannot_complete();

  CompletionChannel channel_;
  CompletionQueue queue_;
  WaitQueue waiters_;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<OperationRecord>> posted_;
  std::uint64_t last_id_ = 0;
  std::deque<Completion> others_;
  std::atomic<std::uint64_t> settled_count_{0};
};

// Waits until an operation is settled.
class OperationCondition : public PollingCondition {
 public:
  OperationCondition(OperationsCore& core, const Operation& operation)
      : PollingCondition(core.waiters(), core.channel(), core.queue()),
        core_(core),
        operation_(operation) {}

 private:
  [[nodiscard]] bool poll_and_test() override {
    core_.poll();
    return operation_.settled();
  }
  [[nodiscard]] bool settled() override { return operation_.settled(); }
  OperationsCore& core_;
  const Operation& operation_;
};

// Waits until more operations are settled than `before`.
class RoomCondition : public PollingCondition {
 public:
  RoomCondition(OperationsCore& core, std::uint64_t before)
      : PollingCondition(core.waiters(), core.channel(), core.queue()),
        core_(core),
        before_(before) {}

 private:
  [[nodiscard]] bool poll_and_test() override {
    core_.poll();
    return settled();
  }
  [[nodiscard]] bool settled() override { return core_.settled_count() != before_; }
  OperationsCore& core_;
  std::uint64_t before_;
};

}  // namespace weft::verbs::detail
