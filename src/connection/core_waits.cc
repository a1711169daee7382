#include "connection/core_waits.h"

namespace weft::connection::detail {

bool QueueCondition::holds() {
  if (!turn_.is_mine()) return settled();
  const auto& side = core_.side(queue_);
  if (had_turn_) {
    while (side.channel.wait(Deadline::now())) continue;
  }
  had_turn_ = true;
  if (take_()) return true;
  side.queue.arm();
  if (take_()) return true;  // what came before the queue was armed raises no event
  if (!core_.has_ended()) return false;
  // Everything posted was flushed before the end was known: nothing more will come.
  static_cast<void>(take_());
  return true;
}

Descriptors QueueCondition::descriptors() const {
  if (!had_turn_) return {turn_.fd()};
  return {core_.side(queue_).channel.fd(), core_.events().fd(), core_.ended().fd()};
}

OutcomesCondition::OutcomesCondition(Core& core, Queue queue, std::size_t count)
    : QueueCondition(core, queue, [this, queue, count] {
        core_.collect(queue, count, found_);
        return found_.size() == count;
      }) {}

ClaimCondition::ClaimCondition(Core& core)
    : QueueCondition(core, Queue::send, [this] {
        core_.collect_claims();
        return core_.is_settled(claim_);
      }) {
  claim_.turn = &turn_;
}

ClaimCondition::~ClaimCondition() {
  static_cast<void>(core_.give_up(claim_));
}

RoomCondition::RoomCondition(Core& core)
    : QueueCondition(core, Queue::send, [this] { return core_.has_room(); }) {}

bool AdvertisementCondition::holds() {
  found_ = core_.take_advertisement();
  return found_ || core_.has_ended();
}

Descriptors AdvertisementCondition::descriptors() const {
  return {core_.advertisement_fd(), core_.events().fd(), core_.ended().fd()};
}

Descriptors EndCondition::descriptors() const {
  return {core_.events().fd(), core_.ended().fd()};
}

}  // namespace weft::connection::detail
