#include "device/completion/completion_channel.h"

#include <atomic>
#include <cstdint>

#include "device/completion/completion_queue.h"
#include "device/system.h"

namespace weft::device {

CompletionChannel::CompletionChannel(ibv_context* context) {
  channel_.context = context;
  channel_.fd = events_.fd();
}

CompletionChannel::Owned CompletionChannel::make(ibv_context* context) {
  return Owned(new CompletionChannel(context));
}

CompletionChannel::Owned CompletionChannel::hold() {
  owners_.fetch_add(1, std::memory_order_relaxed);
  return Owned(this);
}

void CompletionChannel::release() {
  if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void CompletionChannel::add(CompletionQueue& queue) {
  // ibv_destroy_comp_channel(3) answers EBUSY while this count is not 0.
  ++std::atomic_ref(channel_.refcnt);
  const std::lock_guard lock(queues_mutex_);
  queues_.push_back(&queue);
}

void CompletionChannel::remove(CompletionQueue& queue) {
  {
    const std::lock_guard lock(queues_mutex_);
    std::erase(queues_, &queue);
  }
  --std::atomic_ref(channel_.refcnt);
}

// Another thread may take the event between the wait and the look, so both are repeated.
int CompletionChannel::next(CompletionQueue*& queue) {
  while (true) {
    if (const int failed = sys::await_token(events_.fd())) return failed;
    if (take(queue)) return 0;
  }
}

// Delivered events are counted under the lock of the event queue: destruction must not find an
// event neither pending nor delivered.
bool CompletionChannel::take(CompletionQueue*& queue) {
  return events_.take(queue, [](CompletionQueue* taken) { taken->count_delivered(); });
}

bool CompletionChannel::take_token() {
  std::uint64_t one = 0;
  return events_.has_event() && sys::read_nowait(events_.fd(), &one, sizeof one) == sizeof one;
}

bool CompletionChannel::begin_look() {
  if (!queues_mutex_.try_lock()) return false;
  bool armed = false;
  for (CompletionQueue* const queue : queues_) armed |= queue->begin_look();
  if (!armed) queues_mutex_.unlock();
  return armed;
}

void CompletionChannel::look() {
  for (CompletionQueue* const queue : queues_) queue->look();
}

void CompletionChannel::end_look() {
  for (CompletionQueue* const queue : queues_) queue->end_look();
  queues_mutex_.unlock();
}

}  // namespace weft::device
