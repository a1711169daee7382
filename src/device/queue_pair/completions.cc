#include "device/queue_pair/completions.h"

#include <span>
#include <utility>

namespace weft::device {
namespace {

using iwarp::Operation;
using iwarp::Status;

// The core names a cause, ibv_poll_cq(3) a status; each cause has exactly one. MW_BIND_ERR and
// LOC_QP_OP_ERR come from local requests, which reach no peer.
ibv_wc_status verbs_status(Status status) {
  switch (status) {
    case Status::success:
      return IBV_WC_SUCCESS;
    case Status::local_length:
      return IBV_WC_LOC_LEN_ERR;
    case Status::local_protection:
      return IBV_WC_LOC_PROT_ERR;
    case Status::local_operation:
      return IBV_WC_LOC_QP_OP_ERR;
    case Status::window_bind:
      return IBV_WC_MW_BIND_ERR;
    case Status::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case Status::remote_access:
      return IBV_WC_REM_ACCESS_ERR;
    case Status::remote_invalid_request:
      return IBV_WC_REM_INV_REQ_ERR;
    case Status::remote_operation:
      return IBV_WC_REM_OP_ERR;
    case Status::retry_exceeded:
      return IBV_WC_RETRY_EXC_ERR;
    case Status::rnr_retry_exceeded:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case Status::bad_response:
      return IBV_WC_BAD_RESP_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

// The sender's completion shows no immediate and no invalidation, so variants of an operation share
// an opcode (ibv_poll_cq(3)).
ibv_wc_opcode verbs_opcode(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::send_invalidate:
    case Operation::send_immediate:
      return IBV_WC_SEND;
    case Operation::write:
    case Operation::write_immediate:
      return IBV_WC_RDMA_WRITE;
    case Operation::read:
      return IBV_WC_RDMA_READ;
    case Operation::compare_swap:
      return IBV_WC_COMP_SWAP;
    case Operation::fetch_add:
      return IBV_WC_FETCH_ADD;
    case Operation::atomic_write:
      return IBV_WC_ATOMIC_WRITE;
    case Operation::bind_window:
      return IBV_WC_BIND_MW;
    case Operation::local_invalidate:
      return IBV_WC_LOCAL_INV;
  }
  return IBV_WC_SEND;
}

// A new completion, made in its place: a copy of what was just written in smaller parts waits until
// these have reached the cache.
Delivery& begin(std::vector<Completed>& pending, QueueSlots& slots, CompletionQueue* into) {
  Completed& made = pending.emplace_back();
  made.into = into;
  made.delivery.slots = &slots;
  return made.delivery;
}

}  // namespace

Completions::Completions(ibv_qp& qp, std::uint32_t send_requests)
    : qp_(qp),
      send_queue_(CompletionQueue::of(qp.send_cq)),
      receive_queue_(CompletionQueue::of(qp.recv_cq)),
      send_slots_(send_requests) {}

// The opcode is set for failures as well. ibv_poll_cq(3) leaves it undefined there, but programs
// print it.
void Completions::add_send(const iwarp::SendCompletion& completion) {
  Delivery& delivery = begin(pending_, send_slots_, send_queue_);
  filled_ = true;
  delivery.covered = completion.covered;
  ibv_wc& wc = delivery.completion;
  wc.wr_id = completion.wr_id;
  wc.qp_num = qp_.qp_num;
  wc.opcode = verbs_opcode(completion.operation);
  wc.byte_len = completion.length_bytes;
  wc.status = verbs_status(completion.status);
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    wc.status = replaced(wc, send_replacement_);
    if (wc.status == IBV_WC_RETRY_EXC_ERR) wc.vendor_err = static_cast<std::uint32_t>(loss_);
    failed_ = true;
  }
}

void Completions::complete_send(ibv_wc_opcode opcode, std::uint64_t wr_id,
                                std::uint32_t length_bytes, std::uint32_t covered) {
  const auto fill = [&](Delivery& delivery) {
    delivery = {};
    delivery.slots = &send_slots_;
    delivery.covered = covered;
    ibv_wc& wc = delivery.completion;
    wc.wr_id = wr_id;
    wc.opcode = opcode;
    wc.byte_len = length_bytes;
    wc.qp_num = qp_.qp_num;
  };
  if (send_queue_->push_plainly(fill)) {
    ++counters_.send_completions[IBV_WC_SUCCESS];
    return;
  }
  Completed& collected = pending_.emplace_back();
  fill(collected.delivery);
  collected.into = send_queue_;
  filled_ = true;
}

// `from_write` is a Write with immediate: its payload is at the address of the Write, and the
// receive's own buffers are untouched.
ibv_wc& Completions::add_receive(const iwarp::ReceiveCompletion& completion, QueueSlots& slots,
                                 CompletionQueue* into) {
  Delivery& delivery = begin(pending_, slots, into ? into : receive_queue_);
  filled_ = true;
  delivery.solicited = completion.solicited;
  delivery.receive = true;
  ibv_wc& wc = delivery.completion;
  wc.wr_id = completion.wr_id;
  wc.qp_num = qp_.qp_num;
  wc.opcode = completion.from_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = completion.length_bytes;
  wc.status = verbs_status(completion.status);
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    wc.status = replaced(wc, receive_replacement_);
    failed_ = true;
  }
  // One union of ibv_wc holds the immediate (in network order, as it was posted) or the key, so
  // only one of them can be reported.
  if (completion.has_immediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = completion.immediate_be;
  } else if (completion.has_invalidated) {
    wc.wc_flags |= IBV_WC_WITH_INV;
    wc.invalidated_rkey = completion.invalidated_rkey;
  }
  return wc;
}

void Completions::deliver_receive(DirectPoll& poll, std::uint64_t wr_id, std::uint32_t length_bytes,
                                  const std::uint32_t* immediate_be) {
  ibv_wc& wc = poll.take();
  wc = {};
  wc.wr_id = wr_id;
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = length_bytes;
  wc.qp_num = qp_.qp_num;
  if (immediate_be) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = *immediate_be;
  }
  receive_queue_->note_delivered(1);
  ++counters_.receive_completions[IBV_WC_SUCCESS];
  ++counters_.received.operations;
  counters_.received.bytes += length_bytes;
}

void Completions::replace_send_status(std::uint64_t wr_id, ibv_wc_status status) {
  if (send_replacement_.status == IBV_WC_SUCCESS) send_replacement_ = {wr_id, status};
}

void Completions::replace_receive_status(std::uint64_t wr_id, ibv_wc_status status) {
  if (receive_replacement_.status == IBV_WC_SUCCESS) receive_replacement_ = {wr_id, status};
}

void Completions::give_up_send_status(std::uint64_t wr_id) {
  if (send_replacement_.wr_id == wr_id) send_replacement_ = {};
}

void Completions::give_up_receive_status(std::uint64_t wr_id) {
  if (receive_replacement_.wr_id == wr_id) receive_replacement_ = {};
}

// A request that is flushed has not failed itself. Ids may repeat, so a replacement is used once.
ibv_wc_status Completions::replaced(const ibv_wc& failure, Replacement& replacement) {
  const bool here = replacement.status != IBV_WC_SUCCESS && failure.wr_id == replacement.wr_id;
  if (!here || failure.status == IBV_WC_WR_FLUSH_ERR) return failure.status;
  return std::exchange(replacement, {}).status;
}

// A full queue loses one completion, not those behind it: each completion is offered to its queue,
// in the order in which the requests ended.
Completions::Published Completions::publish(DirectPoll* poll) {
  if (observation_) [[unlikely]]
    return publish_observed();
  bool fits = true;
  // Sends and receives mostly complete into one queue, in one run.
  for (std::span<const Completed> rest(pending_); !rest.empty();) {
    std::size_t run = 0;
    for (; run < rest.size() && rest[run].into == rest.front().into; ++run) {
      count(rest[run].delivery);
    }
    CompletionQueue& into = *rest.front().into;
    const std::size_t direct =
        poll && poll->queue == &into ? into.deliver(rest.first(run), *poll) : 0;
    if (direct < run) fits &= into.push(rest.subspan(direct, run - direct));
    rest = rest.subspan(run);
  }
  pending_.clear();
  filled_ = false;
  return fits ? Published::all : Published::lost;
}

Completions::Published Completions::publish_observed() {
  if (observation_->late) return publish_late();
  bool fits = true;
  for (const auto& [delivery, into] : pending_) {
    count(delivery);
    fits &= into->push(delivery, observation_->watch.completed(delivery));
  }
  pending_.clear();
  filled_ = false;
  return fits ? Published::all : Published::lost;
}

Completions::Published Completions::publish_late() {
  LateCompletions& late = *observation_->late;
  const std::uint64_t now_ns = sys::now_ns();
  for (const Completed& completed : pending_) late.add(qp_, completed, now_ns);
  pending_.clear();
  bool fits = true;
  while (auto due = late.take(now_ns)) {
    const auto& [delivery, into] = due->completed;
    count(delivery);
    const std::uint64_t trace = observation_->watch.completed(delivery);
    fits &= due->overruns ? into->lose(delivery) : into->push(delivery, trace);
  }
  filled_ = !late.empty();
  if (!fits) return Published::lost;
  return filled_ ? Published::late : Published::all;
}

// These completions will never be polled, so their places are given back here.
void Completions::drop() {
  for (const Completed& completed : pending_) {
    completed.delivery.drop();
    if (completed.delivery.is_received()) ++counters_.unpolled_receives;
  }
  pending_.clear();
  filled_ = false;
  if (observation_) {
    if (observation_->late) observation_->late->drop();
    observation_->watch.dropped();
  }
  // A request that was to fail may have been flushed instead.
  send_replacement_ = {};
  receive_replacement_ = {};
  loss_ = 0;
}

// After RESET or destruction a program must not poll completions of the old life of the number: it
// may have freed what their ids name. Those of XRC receives stay: they belong to the shared queue.
void Completions::withdraw() {
  for (CompletionQueue* queue : {send_queue_, receive_queue_}) {
    if (queue) counters_.unpolled_receives += queue->forget(qp_.qp_num);
  }
}

// Counts at publication: what is dropped before is in no counter.
void Completions::count(const Delivery& delivery) {
  const ibv_wc& completion = delivery.completion;
  if (!delivery.receive) {
    ++counters_.send_completions[completion.status];
    return;
  }
  ++counters_.receive_completions[completion.status];
  if (completion.status != IBV_WC_SUCCESS) return;
  ++counters_.received.operations;
  // The payload of a Write with immediate was counted when the peer wrote it.
  if (completion.opcode == IBV_WC_RECV) counters_.received.bytes += completion.byte_len;
}

}  // namespace weft::device
