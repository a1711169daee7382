#include "stream/async_waits.h"

#include <algorithm>

namespace weft::stream::detail {

// unwatch() waits for a call of changed() that is under way.
ReadinessCondition::~ReadinessCondition() {
  if (watch_) endpoint_->unwatch(&*watch_);
}

// Lowers the flag before it looks, so that no change meanwhile is lost. Changes are reported only,
// and an attempt that has moved a part may leave the stream as ready as it was: so the present
// state counts as a change. watch() reports it the first time.
bool ReadinessCondition::holds() {
  if (watch_) watch_->flag.lower();
  if (attempt()) return true;
  if (!watch_) {
    watch_.emplace(wanted_);
    endpoint_->watch(&*watch_);
  } else {
    watch_->changed(endpoint_->readiness());
  }
  return false;
}

// A coroutine that has no turn yet waits for its entry alone.
bool TransferCondition::holds() {
  if (!has_turn_) {
    entry_.rest();
    has_turn_ = entry_.is_first();
  }
  return has_turn_ && ReadinessCondition::holds();
}

Descriptors TransferCondition::descriptors() const {
  return has_turn_ ? ReadinessCondition::descriptors() : Descriptors{entry_.fd()};
}

// A failure after the first byte ends the transfer with what was sent; the next one returns it.
bool SendCondition::attempt() {
  const Transfer now = endpoint().send(Gather(std::span(&left_, 1)), Deadline::now());
  if (now.would_block()) return false;
  if (!now.ok()) {
    if (outcome_.bytes == 0) outcome_ = now;
    return true;
  }
  outcome_ = {TransferStatus::ok, outcome_.bytes + now.bytes, 0};
  left_ = left_.subspan(now.bytes);
  return left_.empty();
}

bool ReceiveCondition::attempt() {
  const Transfer now = endpoint().receive(Scatter(std::span(&left_, 1)), Deadline::now(), {});
  if (now.would_block()) return false;
  if (!now.ok()) {
    if (outcome_.bytes == 0) outcome_ = now;
    return true;
  }
  outcome_ = {TransferStatus::ok, outcome_.bytes + now.bytes, 0};
  left_ = left_.subspan(now.bytes);
  return !wait_all_ || left_.empty();
}

bool ViewCondition::attempt() {
  view_ = endpoint().view(Deadline::now());
  return !view_.transfer.would_block();
}

bool ClosedCondition::holds() {
  if (endpoint_->state() == State::closed || endpoint_->close_if_sent()) return true;
  constexpr std::chrono::microseconds longest{2000};
  timer_.set(interval_);
  interval_ = std::min(interval_ * 2, longest);
  return false;
}

}  // namespace weft::stream::detail
