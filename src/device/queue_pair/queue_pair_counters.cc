// What a queue pair counts, under the lock that is held anyway.
#include <utility>

#include "device/queue_pair/queue_pair.h"

namespace weft::device {

QueuePairCounters QueuePair::counters() {
  const std::lock_guard lock(mutex_);
  return counters_locked();
}

QueuePairCounters QueuePair::counters_locked() const {
  QueuePairCounters now = counters_;
  const std::uint64_t now_ns = stream_ ? sys::now_ns() : 0;
  if (stream_) {
    now.rnr_waits += stream_->rnr_waits();
    now.rnr_wait_ns += stream_->rnr_wait_ns(now_ns);
  }
  if (awaits_credit_) now.credit_wait_ns += now_ns - awaits_credit_since_ns_;
  if (pairing_) now.connection_retries += pairing_->retries();
  return now;
}

// The stream goes, and what it has counted stays.
void QueuePair::absorb_stream_counters() {
  const std::uint64_t now_ns = sys::now_ns();
  counters_.rnr_waits += stream_->rnr_waits();
  counters_.rnr_wait_ns += stream_->rnr_wait_ns(now_ns);
  if (std::exchange(awaits_credit_, false)) {
    counters_.credit_wait_ns += now_ns - awaits_credit_since_ns_;
  }
}

void QueuePair::count_completed(const Delivery& delivery) {
  const ibv_wc& completion = delivery.completion;
  if (!delivery.receive) {
    ++counters_.send_completions[completion.status];
    return;
  }
  ++counters_.receive_completions[completion.status];
  if (completion.status != IBV_WC_SUCCESS) return;
  ++counters_.received.operations;
  if (completion.opcode == IBV_WC_RECV) counters_.received.bytes += completion.byte_len;
}

// The clock is looked at only where a wait begins or ends.
void QueuePair::note_credit() {
  if (stream_->awaits_credit() == awaits_credit_) return;
  awaits_credit_ = !awaits_credit_;
  const std::uint64_t now_ns = sys::now_ns();
  if (awaits_credit_) {
    ++counters_.credit_waits;
    awaits_credit_since_ns_ = now_ns;
  } else {
    counters_.credit_wait_ns += now_ns - awaits_credit_since_ns_;
  }
}

}  // namespace weft::device
