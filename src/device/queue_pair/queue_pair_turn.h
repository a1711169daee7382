// Private to the queue pair's own files.
#pragma once

#include "device/queue_pair/queue_pair.h"

namespace weft::device {

class QueuePair::Turn {
 public:
  explicit Turn(QueuePair& queue_pair) : queue_pair_(queue_pair), lock_(queue_pair.mutex_) {}
  Turn(QueuePair& queue_pair, std::try_to_lock_t /*tag*/)
      : queue_pair_(queue_pair), lock_(queue_pair.mutex_, std::try_to_lock) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  ~Turn() {
    if (!lock_) return;
    queue_pair_.publish();
    const bool ready = std::exchange(queue_pair_.ready_notice_, false);
    const bool ended = std::exchange(queue_pair_.end_notice_, false);
    if (!ready && !ended) return;
    const auto observer = queue_pair_.observer_.lock();
    const iwarp::EndReason reason = queue_pair_.end_reason_;
    lock_.unlock();
    if (!observer) return;
    if (ready) observer->on_stream_ready();
    if (ended) observer->on_stream_ended(reason);
  }

  [[nodiscard]] bool owns() const { return lock_.owns_lock(); }

 private:
  QueuePair& queue_pair_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace weft::device
