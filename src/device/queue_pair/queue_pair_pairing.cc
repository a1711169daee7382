// The stream that a queue pair gets without rdma_cm, and the work that waits for one.
#include <cerrno>

#include "device/connect/slots.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/queue_pair_turn.h"

namespace weft::device {

// On the way to RTR, with attributes that were checked.
void QueuePair::begin_pairing() {
  awaits_cm_ = attributes_.dest_qp_num == slot::stream_of_cm;
  if (awaits_cm_) return;
  Pairing::Plan plan;
  const int failed = Pairing::make_plan(context_.device(), handle_.qp.qp_num, attributes_, plan);
  if (failed != 0) return;
  plan.control_stag = memory_.random_control_stag();
  plan.unreliable = is_unreliable();
  // Not make_shared: the engine's alarms remember it for long, and shall not keep its memory.
  pairing_.reset(new Pairing(context_.device(), weak_from_this(), plan));
  pairing_->start();
}

void QueuePair::end_pairing() {
  awaits_cm_ = false;
  if (!pairing_) return;
  pairing_->cancel();
  counters_.connection_retries += pairing_->retries();
  pairing_.reset();
}

QueuePair::PairingView QueuePair::pairing() {
  const std::lock_guard lock(mutex_);
  return {handle_.qp.state, pairing_};
}

int QueuePair::attach_pair(StreamSocket socket, const StreamParameters& parameters,
                           const Pairing& pairing) {
  const Turn turn(*this);
  if (destroyed_ || stream_ || pairing_.get() != &pairing) return EINVAL;
  observer_.reset();
  const int failed = open_stream(std::move(socket), parameters);
  if (failed != 0) leave_stream();
  return failed;
}

void QueuePair::fail_pairing(const Pairing& pairing) {
  const Turn turn(*this);
  if (pairing_.get() == &pairing && !stream_) fail_waiting();
}

// Whether a request may be posted: without a stream only where one will come, or where the lack of
// it is news to the program.
bool QueuePair::takes_work() const {
  if (handle_.qp.state != IBV_QPS_RTS && handle_.qp.state != IBV_QPS_SQD) return false;
  return stream_ || pairing_ || awaits_cm_;
}

// Without rdma_cm the peer can only be a Weft.
bool QueuePair::takes_send_immediate() const {
  return stream_ ? stream_->takes_send_immediate() : pairing_ != nullptr;
}

// After posting, where there is no stream.
void QueuePair::await_stream() {
  if (waiting_.empty() || !pairing_) return;
  if (pairing_->over()) return fail_waiting();
  const std::uint64_t least_ns = context_.device().settings().least_patience_ns;
  if (is_unreliable()) return pairing_->work_waits(least_ns);  // it has no such attributes
  pairing_->work_waits(patience_ns(attributes_.timeout, attributes_.retry_cnt, least_ns));
}

void QueuePair::release_waiting() {
  waiting_.release([this](const iwarp::WorkRequest& request) {
    (void)stream_->post(request);  // was checked, and an empty queue has room
  });
}

// The first request learns that the peer did not answer, the others are flushed.
void QueuePair::fail_waiting() {
  if (waiting_.empty()) return;
  if (is_unreliable()) return drop_waiting();
  bool first = true;
  waiting_.release([&](const iwarp::WorkRequest& request) {
    complete_send({.wr_id = request.wr_id,
                   .operation = request.operation,
                   .status = first ? iwarp::Status::retry_exceeded : iwarp::Status::flushed});
    first = false;
  });
  enter_error();
}

// Without a peer an unreliable connection sends into the void, and nobody can tell.
void QueuePair::drop_waiting() {
  std::uint32_t silent = 0;
  waiting_.release([&](const iwarp::WorkRequest& request) {
    ++silent;
    if (!request.signaled) return;
    complete_send({.wr_id = request.wr_id, .operation = request.operation, .covered = silent});
    silent = 0;
  });
  send_slots_.give_back(silent);
}

// Whether requests that the end of the stream leaves unanswered are tried on, as on InfiniBand,
// until their patience ends. Until then the program finds what has completed before.
bool QueuePair::fails_later() const {
  return pairing_ && confirmed_ && !failed_ && !is_unreliable() && stream_ &&
         stream_->end_reason() == iwarp::EndReason::peer_closed;
}

// InfiniBand knows no end of a connection: a peer that goes leaves the queue pair as it was, and
// only requests that are under way or come later find out. With rdma_cm, or after a Terminate, the
// stream's end is the queue pair's.
void QueuePair::on_stream_over() {
  const iwarp::EndReason reason = stream_->end_reason();
  if (reason == iwarp::EndReason::terminated) note_refusal(stream_->terminate().code);
  const bool peer_went = reason == iwarp::EndReason::peer_closed ||
                         (is_unreliable() && reason == iwarp::EndReason::peer_terminated);
  if (!pairing_ || !peer_went) return enter_error();
  if (failed_) return waiting_.empty() ? enter_error() : fail_waiting();
  const bool had_peer = confirmed_;
  leave_stream();
  pairing_->lost(!had_peer);
  await_stream();
}

}  // namespace weft::device
