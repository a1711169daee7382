// Counts how often, and how long, a Send waits for a receive of the peer.
#pragma once

#include <cstdint>

#include "device/local/inbox.h"
#include "weft/counters.hpp"

namespace weft::device {

// As over TCP: a wait of a message that the peer can hold counts at the peer (rnr_waits), of a
// larger one at this end (credit_waits). Covered by the queue pair's lock.
class ReceiveWait {
 public:
  explicit ReceiveWait(inbox::Inbox& peer) : peer_(peer) {}

  // Does nothing where a wait has begun already.
  void begin(std::uint64_t length_bytes);
  void end() {
    if (began_ns_ != 0) finish();
  }
  [[nodiscard]] bool waits() const { return began_ns_ != 0; }
  // Adds the waits that count here.
  void add_counters(QueuePairCounters& counters) const;
  // Adds those that the peer has counted for this end.
  static void add_peers_waits(const inbox::Inbox& own, QueuePairCounters& counters);

 private:
  void finish();

  inbox::Inbox& peer_;
  std::uint64_t began_ns_ = 0;  // 0: nothing waits
  bool for_room_ = false;
  std::uint64_t credit_waits_ = 0;
  std::uint64_t credit_wait_ns_ = 0;  // of those that are over
};

}  // namespace weft::device
