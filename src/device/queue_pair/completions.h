// Completions in the making: from the outcomes of the protocol core to the work completions of
// verbs, with the places in the queues that they free and the counters that they feed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "device/completion/completion_queue.h"
#include "device/queue_pair/observation.h"
#include "device/queue_pair/queue_slots.h"
#include "iwarp/types.h"
#include "weft/counters.hpp"

namespace weft::device {

// Collects the completions of one queue pair until they are published. They stay invisible until
// then, because the answers to what a peer has sent must be written first (see
// QueuePair::settle()). Not thread safe: the queue pair's lock covers it.
class Completions {
 public:
  // `qp` names the two completion queues, of which either may be null (XRC), and outlives this
  // object.
  Completions(ibv_qp& qp, std::uint32_t send_requests);

  // The places of the send queue. A request takes one when it is posted; its completion gives it
  // back when the application polls it.
  [[nodiscard]] QueueSlots& send_slots() { return send_slots_; }
  [[nodiscard]] const QueueSlots& send_slots() const { return send_slots_; }

  // Looks at what is published from here on; null: nothing does. It outlives this object, or the
  // next call.
  void set_observation(Observation* observation) { observation_ = observation; }
  // When publish() is to be called again for completions that a rule delays; nothing where that has
  // been returned before.
  [[nodiscard]] std::optional<std::uint64_t> new_alarm_ns() {
    return late() ? late()->new_alarm_ns() : std::nullopt;
  }

  void add_send(const iwarp::SendCompletion& completion);
  // The success of a request of the send queue, where nothing looks at what is published: it is
  // visible at once, or collected as by add_send() where that takes more than a place in the queue.
  void complete_send(ibv_wc_opcode opcode, std::uint64_t wr_id, std::uint32_t length_bytes,
                     std::uint32_t covered);
  // The request with this id, which is posted next, is going to fail; its completion will show
  // `status`. The first one counts until it is used or given up: a connection has no second
  // failure.
  void replace_send_status(std::uint64_t wr_id, ibv_wc_status status);
  void replace_receive_status(std::uint64_t wr_id, ibv_wc_status status);
  // The request was not posted after all.
  void give_up_send_status(std::uint64_t wr_id);
  void give_up_receive_status(std::uint64_t wr_id);
  // `slots`: of the queue that the receive came from. `into`: its completion queue, where it is not
  // the queue pair's. Returns the new completion, for what only some carriers know (the source of a
  // datagram). The reference is good until the next call.
  ibv_wc& add_receive(const iwarp::ReceiveCompletion& completion, QueueSlots& slots,
                      CompletionQueue* into = nullptr);

  // Whether deliver_receive() may be called: nothing is collected, and the poll is one of the queue
  // of receives.
  [[nodiscard]] bool delivers_to(const DirectPoll& poll) const {
    return poll.queue == receive_queue_ && empty() && receive_queue_->delivers();
  }
  // The success of the receive of a Send, straight into the array of the poll, which has room.
  // `immediate_be`: null: none. The place of the receive is for the caller to give back.
  void deliver_receive(DirectPoll& poll, std::uint64_t wr_id, std::uint32_t length_bytes,
                       const std::uint32_t* immediate_be);

  enum class Published : std::uint8_t {
    all,
    late,  // a rule of faults keeps some back: see new_alarm_ns()
    lost,  // a completion queue had no room, so the queue pair must fail; some may be late as well
  };
  // Makes everything collected visible. `poll`: of the thread that calls, if it polls.
  [[nodiscard]] Published publish(DirectPoll* poll = nullptr);
  // Throws away what was collected, gives its places back, and forgets the statuses that were to be
  // replaced.
  void drop();
  // A shared receive queue of the XRC domain is being destroyed: throws away what a rule of faults
  // keeps back of its receives.
  void forget(const QueueSlots& slots) {
    if (late()) late()->forget(slots);
  }
  // Removes from both completion queues what they still hold of this queue pair.
  void withdraw();
  // Nothing is collected, and nothing is late.
  [[nodiscard]] bool empty() const { return !filled_; }

  // Whether the application may sleep until a completion comes, without another call before.
  [[nodiscard]] bool awaited() const {
    return (send_queue_ && send_queue_->is_armed()) ||
           (receive_queue_ && receive_queue_->is_armed());
  }
  // The same, until any receive completes.
  [[nodiscard]] bool receives_awaited() const {
    return receive_queue_ && receive_queue_->is_armed_for_any();
  }

  // Whether any request has failed since clear_failure().
  [[nodiscard]] bool failed() const { return failed_; }
  void clear_failure() {
    failed_ = false;
    loss_ = 0;
  }
  // The connection is lost, with this errno value. Requests that complete with RETRY_EXC_ERR from
  // now on show it as `vendor_err`: programs can tell a peer that closed from one that is silent.
  void note_loss(int error) { loss_ = error; }

  // Everything that the queue pair counts, but for what a carrier counts while it lives.
  [[nodiscard]] QueuePairCounters& counters() { return counters_; }
  [[nodiscard]] const QueuePairCounters& counters() const { return counters_; }

 private:
  struct Replacement {
    std::uint64_t wr_id = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;  // success: none
  };

  [[nodiscard]] Published publish_observed();
  [[nodiscard]] Published publish_late();
  void count(const Delivery& delivery);
  // Null: no rule of faults names completions.
  [[nodiscard]] LateCompletions* late() {
    return observation_ ? observation_->late.get() : nullptr;
  }
  [[nodiscard]] static ibv_wc_status replaced(const ibv_wc& failure, Replacement& replacement);

  ibv_qp& qp_;
  CompletionQueue* send_queue_;
  CompletionQueue* receive_queue_;
  QueueSlots send_slots_;
  std::vector<Completed> pending_;
  bool filled_ = false;                 // see empty()
  Observation* observation_ = nullptr;  // null: see QueuePairParts
  QueuePairCounters counters_;
  Replacement send_replacement_;
  Replacement receive_replacement_;
  bool failed_ = false;
  int loss_ = 0;  // errno value; 0: not lost, or never connected
};

}  // namespace weft::device
