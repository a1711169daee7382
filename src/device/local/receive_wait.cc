#include "device/local/receive_wait.h"

#include <algorithm>

#include "device/system.h"

namespace weft::device {

void ReceiveWait::begin(std::uint64_t length_bytes) {
  // The wait has begun already; the clock is read only at its two ends.
  if (began_ns_ != 0) return;
  began_ns_ = sys::now_ns();
  // Over TCP a Send that does not fit into the hold waits at its sender for room, and one that fits
  // waits at the receiver. The counters keep that distinction.
  for_room_ = length_bytes > peer_.hold_bytes.load(std::memory_order_relaxed);
  if (for_room_) {
    ++credit_waits_;
    return;
  }
  // In the peer's memory, because receiver-not-ready is counted by the receiver.
  peer_.rnr.began_ns.store(began_ns_, std::memory_order_relaxed);
  peer_.rnr.count.fetch_add(1, std::memory_order_relaxed);
}

void ReceiveWait::finish() {
  const std::uint64_t waited_ns = sys::now_ns() - began_ns_;
  began_ns_ = 0;
  if (for_room_) {
    credit_wait_ns_ += waited_ns;
    return;
  }
  peer_.rnr.over_ns.fetch_add(waited_ns, std::memory_order_relaxed);
  peer_.rnr.began_ns.store(0, std::memory_order_relaxed);
}

void ReceiveWait::add_counters(QueuePairCounters& counters) const {
  counters.credit_waits += credit_waits_;
  counters.credit_wait_ns += credit_wait_ns_;
  if (began_ns_ != 0 && for_room_) counters.credit_wait_ns += sys::now_ns() - began_ns_;
}

void ReceiveWait::add_peers_waits(const inbox::Inbox& own, QueuePairCounters& counters) {
  counters.rnr_waits += own.rnr.count.load(std::memory_order_relaxed);
  const std::uint64_t began_ns = own.rnr.began_ns.load(std::memory_order_relaxed);
  counters.rnr_wait_ns += own.rnr.over_ns.load(std::memory_order_relaxed);
  const std::uint64_t now_ns = sys::now_ns();
  // The peer may have any value there; a difference below zero would be absurd.
  if (began_ns != 0) counters.rnr_wait_ns += now_ns - std::min(began_ns, now_ns);
}

}  // namespace weft::device
