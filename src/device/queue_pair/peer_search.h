// How a queue pair gets a connection: by pairing with the queue pair that its address vector names,
// or from a connection manager. Also how long work waits for it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "device/connect/pairing.h"
#include "device/queue_pair/queue_pair_lock.h"
#include "device/queue_pair/queue_pair_parts.h"

namespace weft::device {

// From the step to RTR until the queue pair leaves its states again. Of RC and UC queue pairs.
class PeerSearch {
 public:
  explicit PeerSearch(QueuePairParts& parts);
  ~PeerSearch();
  PeerSearch(const PeerSearch&) = delete;
  PeerSearch& operator=(const PeerSearch&) = delete;

  // On the way to RTR, with attributes that were checked. `self` is handed the stream
  // (QueuePair::attach_pair()).
  void begin(const std::weak_ptr<QueuePair>& self, QueuePairLock& lock);
  void end(QueuePairLock& lock);
  // A peer has asked for a connection before there is a pairing, and is turned down for now.
  void asked_early(QueuePairLock& lock);
  // The queue pair is in RESET again, so that a program may give it an address vector.
  void restart(QueuePairLock& lock);
  // The queue pair has reached RTS.
  void ready_to_send(QueuePairLock& lock);
  // The connection is lost. `again`: before the peer had it, so that it is set up once more;
  // otherwise nothing more will come of this pairing.
  void lost(bool again, QueuePairLock& lock);

  // The stream of rdma_cm has ended, and the queue pair stays in RTS (Settings::strict).
  void peer_left(QueuePairLock& lock);

  // A stream has come or will come, or the lack of one is reported by completions.
  [[nodiscard]] bool expects_stream() const { return pairing_ || awaits_manager_ || peer_left_; }
  // Null where a connection manager connects, or none is sought.
  [[nodiscard]] const std::shared_ptr<Pairing>& pairing() const { return pairing_; }

  // Work waits and no carrier takes it: starts the clock of its timeout. False where no connection
  // will come, so that the work fails now.
  [[nodiscard]] bool await(QueuePairLock& lock);

  // In the child after fork(), without the lock.
  void abandon_after_fork();

 private:
  // Counts this queue pair among those that have no address vector yet and may get one, or not.
  void count_expectant(bool expectant);

  QueuePairParts& parts_;
  Device& device_;
  std::shared_ptr<Pairing> pairing_;
  bool awaits_manager_ = false;  // in RTR or RTS, for the stream of rdma_cm
  bool peer_left_ = false;
  bool asked_early_ = false;
  bool expectant_ = false;  // is counted: the queue pair is in RESET or INIT
};

}  // namespace weft::device
