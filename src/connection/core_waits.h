// The conditions that threads and coroutines can wait for on a connection.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "connection/conditions.h"
#include "connection/core.h"
#include "verbs/polling_condition.h"

namespace weft::connection::detail {

// A request with a waiter of its own for the outcome, no matter which thread polls it. Guarded by
// the lock of its queue in Core.
struct AwaitedRequest {
  Queue queue = Queue::send;
  std::optional<Outcome> outcome;
  WaitQueueEntry* entry = nullptr;
  // The device's own queue was full, with requests that the user has posted directly.
  bool device_queue_full = false;
};

// Waits for completions of a queue. The first waiter of the queue calls `take` until that returns
// true or the connection has ended.
class QueueCondition : public verbs::detail::PollingCondition {
 public:
  // `take` polls the queue and returns true if the condition is fulfilled.
  QueueCondition(Core& core, Queue queue, std::function<bool()> take)
      : PollingCondition(core.wait_queue(queue), core.side(queue).channel, core.side(queue).queue),
        core_(core),
        queue_(queue),
        take_(std::move(take)) {}

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override;

 protected:
  [[nodiscard]] Queue queue() const { return queue_; }
  Core& core_;

 private:
  [[nodiscard]] bool poll_and_test() final { return take_(); }
  Queue queue_;
  std::function<bool()> take_;
};

// `count` outcomes of a queue, or fewer if the connection has ended.
class OutcomesCondition : public QueueCondition {
 public:
  OutcomesCondition(Core& core, Queue queue, std::size_t count);
  [[nodiscard]] std::vector<Outcome> take() { return found_; }

 private:
  [[nodiscard]] bool settled() override;
  std::size_t count_;
  std::vector<Outcome> found_;
};

// The outcome of one request, which is posted with awaited(). If the wait ends earlier, the outcome
// is returned by Connection::await().
class AwaitedRequestCondition : public QueueCondition {
 public:
  explicit AwaitedRequestCondition(Core& core, Queue queue = Queue::send);
  ~AwaitedRequestCondition() override;

  [[nodiscard]] AwaitedRequest& awaited() { return request_; }
  [[nodiscard]] std::optional<Outcome> take() { return core_.detach(request_); }

 private:
  [[nodiscard]] bool settled() override { return core_.is_settled(request_); }
  AwaitedRequest request_;
};

// Room for another request in the send queue.
class RoomCondition : public QueueCondition {
 public:
  explicit RoomCondition(Core& core);

 private:
  [[nodiscard]] bool settled() override { return core_.has_known_room(); }
};

class ConnectedCondition : public Condition {
 public:
  explicit ConnectedCondition(Core& core) : core_(core) {}
  [[nodiscard]] bool holds() override { return core_.poll_connected(); }
  [[nodiscard]] Descriptors descriptors() const override { return {core_.events().fd()}; }

 private:
  Core& core_;
};

class AdvertisementCondition : public Condition {
 public:
  explicit AdvertisementCondition(Core& core) : core_(core) {}
  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override;
  [[nodiscard]] std::optional<Advertisement> take() { return found_; }

 private:
  Core& core_;
  std::optional<Advertisement> found_;
};

class EndCondition : public Condition {
 public:
  explicit EndCondition(Core& core) : core_(core) {}
  [[nodiscard]] bool holds() override { return core_.has_ended(); }
  [[nodiscard]] Descriptors descriptors() const override;

 private:
  Core& core_;
};

}  // namespace weft::connection::detail
