#include "connection/core_waits.h"

namespace weft::connection::detail {

// Called again after each wake-up. Draining the channel acknowledges the event that woke this
// waiter; arming before the second take_() closes the race with a completion that arrives in
// between.
//
// A waiter that is not the first only looks at what others have polled. It rests its entry before
// that, so that a wake-up meanwhile is not lost.
bool QueueCondition::holds() {
  if (!was_first_) entry_.rest();
  if (!entry_.is_first()) return settled();
  const auto& side = core_.side(queue_);
  if (was_first_) {
    while (side.channel.wait(Deadline::now())) continue;
  }
  was_first_ = true;
  if (take_()) return true;
  side.queue.arm();
  if (take_()) return true;  // completions from before arm() raise no event
  if (!core_.has_ended()) return false;
  // The embedded device flushes all posted requests before it reports the end, so this take_()
  // finds the last outcomes. Adapters flush some time after they are disconnected.
  return take_() || !core_.awaits_flush(queue_);
}

// Until it is the first, a waiter only waits for its own entry: another one polls the queue.
Descriptors QueueCondition::descriptors() const {
  if (!was_first_) return {entry_.fd()};
  if (core_.ended().raised()) return {core_.side(queue_).channel.fd(), core_.flush_fd()};
  return {core_.side(queue_).channel.fd(), core_.events().fd(), core_.ended().fd()};
}

OutcomesCondition::OutcomesCondition(Core& core, Queue queue, std::size_t count)
    : QueueCondition(core, queue,
                     [this, queue, count] {
                       core_.collect(queue, count, found_);
                       return found_.size() == count;
                     }),
      count_(count) {}

bool OutcomesCondition::settled() {
  core_.take_outcomes(queue(), count_, found_);
  return found_.size() == count_;
}

AwaitedRequestCondition::AwaitedRequestCondition(Core& core, Queue queue)
    : QueueCondition(core, queue, [this] {
        core_.poll(request_.queue);
        return core_.is_settled(request_);
      }) {
  request_.queue = queue;
  request_.entry = &entry_;
}

AwaitedRequestCondition::~AwaitedRequestCondition() {
  static_cast<void>(core_.detach(request_));
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
