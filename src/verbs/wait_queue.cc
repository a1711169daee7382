#include "verbs/wait_queue.h"

#include <algorithm>

namespace weft::verbs::detail {

void WaitQueue::wake_others() noexcept {
  const std::lock_guard lock(lock_);
  for (WaitQueueEntry* const entry : waiting_) {
    if (entry != waiting_.front()) entry->wake();
  }
}

// The first entry waits for the channel itself and needs no descriptor of its own.
WaitQueueEntry::WaitQueueEntry(WaitQueue& turns) : wait_queues_(turns) {
  const std::lock_guard lock(wait_queues_.lock_);
  if (!wait_queues_.waiting_.empty()) flag_.emplace();
  wait_queues_.waiting_.push_back(this);
}

// Wakes the next entry only if this one was the first: the others do not poll.
WaitQueueEntry::~WaitQueueEntry() {
  const std::lock_guard lock(wait_queues_.lock_);
  auto& waiting = wait_queues_.waiting_;
  // The first one drains the channel, so another one must take that over.
  const bool was_first = waiting.front() == this;
  waiting.erase(std::ranges::find(waiting, this));
  if (was_first && !waiting.empty()) waiting.front()->wake();
}

bool WaitQueueEntry::is_first() const {
  const std::lock_guard lock(wait_queues_.lock_);
  return wait_queues_.waiting_.front() == this;
}

void WaitQueueEntry::wake() noexcept {
  if (flag_) flag_->raise();
}

void WaitQueueEntry::rest() noexcept {
  if (flag_) flag_->lower();
}

}  // namespace weft::verbs::detail
