// What can be waited for on a connection.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "connection/conditions.h"
#include "connection/core.h"
#include "connection/turns.h"

namespace weft::connection::detail {

// The outcome of one request, wherever it is polled. Guarded by the core's lock for posting.
struct Claim {
  std::optional<Outcome> outcome;
  Turn* turn = nullptr;
  bool device_is_full = false;  // of requests that this library knows nothing of
};

// Looks after a queue, in its turn, until `take` has what it wants or nothing more can come.
class QueueCondition : public Condition {
 public:
  // `take` polls, and says whether that is enough.
  QueueCondition(Core& core, Queue queue, std::function<bool()> take)
      : core_(core), queue_(queue), take_(std::move(take)), turn_(core.turns(queue)) {}

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override;

 protected:
  // Whether somebody else has found it.
  [[nodiscard]] virtual bool settled() { return false; }
  Core& core_;

 private:
  friend class ClaimCondition;
  Queue queue_;
  std::function<bool()> take_;
  Turn turn_;
  bool had_turn_ = false;
};

// That many outcomes of a queue.
class OutcomesCondition : public QueueCondition {
 public:
  OutcomesCondition(Core& core, Queue queue, std::size_t count);
  [[nodiscard]] std::vector<Outcome> take() { return found_; }

 private:
  std::vector<Outcome> found_;
};

// The outcome of one request, which is posted with this claim. What is not awaited to its end has
// its outcome told in the common way.
class ClaimCondition : public QueueCondition {
 public:
  explicit ClaimCondition(Core& core);
  ~ClaimCondition() override;

  [[nodiscard]] Claim& claim() { return claim_; }
  [[nodiscard]] std::optional<Outcome> take() { return core_.give_up(claim_); }

 private:
  [[nodiscard]] bool settled() override { return core_.is_settled(claim_); }
  Claim claim_;
};

// Room for a request in the send queue.
class RoomCondition : public QueueCondition {
 public:
  explicit RoomCondition(Core& core);
};

class ConnectedCondition : public Condition {
 public:
  explicit ConnectedCondition(Core& core) : core_(core) {}
  [[nodiscard]] bool holds() override { return core_.look_for_connection(); }
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
