// What the parts of a queue pair share: its face, its carrier and the search for its peer.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "device/context.h"
#include "device/queue_pair/carrier_note.h"
#include "device/queue_pair/completions.h"
#include "device/queue_pair/memory_access.h"
#include "device/queue_pair/observation.h"
#include "device/queue_pair/receives.h"
#include "device/queue_pair/refused_access.h"
#include "device/queue_pair/shared_files.h"
#include "device/queue_pair/waiting_work.h"
#include "device/system.h"
#include "iwarp/types.h"

namespace weft::device {

// The creator of a queue pair's connection, which wants to know what becomes of it. Called without
// any lock, from the thread that finds out.
class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;
  // The peer's first FPDU has arrived.
  virtual void on_stream_ready() = 0;
  // The stream has ended, by either side; the completions that this caused are in their queues.
  virtual void on_stream_ended(iwarp::EndReason reason) = 0;
};

// What a connection has to report to its observer once the queue pair's lock is released.
struct ConnectionNotices {
  std::weak_ptr<ConnectionObserver> observer;
  bool ready = false;
  bool ended = false;
  iwarp::EndReason reason = iwarp::EndReason::none;
};

// What the programs of both ends share: each end offers its files before it connects, and receives
// those of the other end if both have left TCP.
struct ConnectionMemory {
  SharedFiles offered;
  SharedFiles received;
};

// Everything here is covered by the queue pair's lock, and lives as long as the queue pair.
struct QueuePairParts {
  QueuePairParts(Context& opened, ibv_qp& handle, const ibv_qp_init_attr& wanted);

  // Makes the observation where there is none, and ends it where it is not needed any more.
  Observation& begin_observation();
  void end_observation();
  // There is nothing to publish and nothing to report: see QueuePair::settle().
  [[nodiscard]] bool settled() const {
    return completions.empty() && !notices.ready && !notices.ended;
  }
  // Raises an asynchronous event of the queue pair, unless it is being destroyed.
  void raise(ibv_event_type type);
  // A message has arrived. The first one on the way to RTS raises IBV_EVENT_COMM_EST.
  void note_arrival();
  // Completes a request that posting has accepted.
  void complete(const iwarp::SendCompletion& completion);
  void complete_receive(const iwarp::ReceiveCompletion& completion);
  // Whether successes of receives of the own queue may go straight into the array of a poll:
  // nothing looks at them, nothing is completed before them, and no event reports their arrival.
  [[nodiscard]] bool delivers_to(const DirectPoll& poll) const {
    return !observation && !destroyed && qp.state == IBV_QPS_RTS && completions.delivers_to(poll);
  }
  // Completes the oldest receive of the own queue like this. `immediate_be`: null: none.
  void deliver_oldest(DirectPoll& poll, std::uint32_t length_bytes,
                      const std::uint32_t* immediate_be) {
    completions.deliver_receive(poll, receives.own_oldest_id(), length_bytes, immediate_be);
    receives.drop_own_oldest();
  }
  // Takes the next receive; see Receives::take().
  bool take_receive(iwarp::ReceiveRequest& request, bool waits);
  // The peer's requests belong to this shared receive queue from here on: see iwarp::Host.
  bool name_receive_queue(std::uint32_t number);
  // The queue is being destroyed. Where the peer's requests belong to it, they may access no memory
  // until the peer names another one.
  void forget_receive_queue(SharedReceiveQueue& queue);
  // Completes what waits for a carrier, as flushed.
  void flush_waiting();
  // Completes the receives of the queue pair's own queue, as flushed.
  void flush_receives();

  // The connection moves its data in this way from now on; prints it if the user wants that. False,
  // with an error message, where the user has required another way.
  [[nodiscard]] bool note_carrier(const CarrierNote& now);

  [[nodiscard]] bool is_unreliable() const { return qp.qp_type == IBV_QPT_UC; }

  Context& context;
  ibv_qp& qp;  // its number, type, state and protection domain
  ibv_qp_attr attributes{};
  ConnectionEnd end;  // whose side is known once there is a connection
  iwarp::QueueLimits limits;
  std::unique_ptr<Observation> observation;  // null: nothing looks at the requests
  Completions completions;
  Receives receives;
  MemoryAccess memory;
  WaitingWork waiting;  // posted while no carrier takes it
  ConnectionNotices notices;
  CarrierNote carrier;
  RefusedAccess refused;  // of the peer, the last one
  ConnectionMemory shared;
  bool arrived = false;    // a message, since RTR
  bool destroyed = false;  // from here on there are no events and no completions
};

}  // namespace weft::device
