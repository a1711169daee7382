#include "connection/core_waits.h"

namespace weft::connection::detail {

// The embedded device flushes all posted requests before it reports the end, so that the last
// poll finds the last outcomes. Adapters flush some time after they are disconnected.
bool QueueCondition::holds() {
  if (PollingCondition::holds()) return true;
  if (!polls() || !core_.has_ended()) return false;
  return poll_and_test() || !core_.awaits_flush(queue_);
}

Descriptors QueueCondition::descriptors() const {
  if (!polls()) return {entry_fd()};
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
  request_.entry = &entry();
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
