// Posting: ibv_post_send(3), ibv_wr_post(3), ibv_post_recv(3), and the states in which they are
// allowed.
#include <cerrno>
#include <utility>

#include "base/uninitialized.h"
#include "device/datagram/address_handle.h"
#include "device/faults/failing_request.h"
#include "device/limits.h"
#include "device/queue_pair/datagram_carrier.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/requests.h"

namespace weft::device {
namespace {

// Counts what the program asked for; the peer may still refuse it.
void add_list(Traffic& traffic, const ibv_sge* list, int count) {
  ++traffic.operations;
  for (int i = 0; i < count; ++i) traffic.bytes += list[i].length;
}

// Posts the requests of a list, up to the first that fails.
template <typename Request, typename Post>
int post_each(Request* request, Request** bad, Post post) {
  for (; request; request = request->next) {
    const int failed = post(*request);
    if (failed == 0) continue;
    *bad = request;
    return failed;
  }
  return 0;
}

}  // namespace

int QueuePair::post_send(ibv_send_wr* request, ibv_send_wr** bad) {
  context().engine().turn_to(*this);
  QueuePairLock lock(mutex_);
  // A program that posts many requests polls when it has done so. Meanwhile the progress thread
  // would take the lock for each answer that comes in, and the program would wait for it.
  note_attention();
  int failed = 0;
  if (parts_.observation) [[unlikely]] {
    failed = post_observed_list(request, bad, lock);
  } else if (request && !request->next && post_promptly(*request, lock)) {
    if (!parts_.settled()) settle(lock);
    return 0;
  } else {
    failed = post_each(request, bad, [&](const ibv_send_wr& one) { return post_one(one, lock); });
  }
  // What was accepted before a bad request is carried out: ibv_post_send(3). One sendmsg for all.
  posted(lock);
  settle(lock);
  return failed;
}

// One Send or Write of a queue pair that has a peer on the same host, as it nearly always is: the
// checks of accept_one(), which decides about everything that they do not allow. A carrier that
// takes the request belongs to a queue pair of type RC.
bool QueuePair::post_promptly(const ibv_send_wr& request, const QueuePairLock& lock) {
  QueueSlots& slots = parts_.completions.send_slots();
  const bool sends = request.opcode == IBV_WR_SEND;
  if (!(sends || request.opcode == IBV_WR_RDMA_WRITE) || request.num_sge != 1 || !carrier_ ||
      handle_.qp.state != IBV_QPS_RTS || !parts_.settled() || parts_.destroyed || slots.full()) {
    return false;
  }
  slots.take();  // before another thread can poll its completion
  const bool signaled = signal_all_ || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  if (!carrier_->post_promptly(request, signaled, lock)) {
    slots.give_back_locked(1);
    return false;
  }
  QueuePairCounters& counters = parts_.completions.counters();
  add_list(sends ? counters.sends : counters.writes, request.sg_list, 1);
  return true;
}

// Two passes: every request is checked against the state of the queue before the first one is
// posted, because ibv_wr_complete(3) posts all of them or none. Injected faults come in between, so
// that they count no request that would be refused anyway.
int QueuePair::post_all(const ibv_send_wr& first) {
  QueuePairLock lock(mutex_);
  const QueueSlots& slots = parts_.completions.send_slots();
  std::uint32_t wanted = slots.taken();
  Uninitialized<iwarp::LocalSlice, limits::max_slices> slices;
  for (const ibv_send_wr* given = &first; given; given = given->next) {
    SendRequest request;
    if (const int failed = check(*given, slices.all(), request, lock)) return failed;
    const bool fits = is_datagram() || iwarp::Requester::acceptable(parts_.limits, request.work);
    if (!fits) return EINVAL;
    if (++wanted > slots.capacity()) return ENOMEM;
  }
  Observation* const observation = parts_.observation.get();
  DeviceFaults* const faults = observation ? observation->faults : nullptr;
  for (const ibv_send_wr* given = &first; given && faults; given = given->next) {
    if (const int failed = faults->call(faults::Point::post_send, handle_.qp)) return failed;
  }
  int failed = 0;
  for (const ibv_send_wr* given = &first; given && failed == 0; given = given->next) {
    // Succeeds: everything was checked.
    failed = observation ? post_observed(*given, *observation, lock) : post_one(*given, lock);
  }
  posted(lock);
  settle(lock);
  return failed;
}

// Out of line, so that the data path has one branch for it.
int QueuePair::post_observed_list(ibv_send_wr* first, ibv_send_wr** bad, QueuePairLock& lock) {
  Observation& observation = *parts_.observation;
  return post_each(first, bad, [&](const ibv_send_wr& one) {
    DeviceFaults* const faults = observation.faults;
    const int failed = faults ? faults->call(faults::Point::post_send, handle_.qp) : 0;
    return failed != 0 ? failed : post_observed(one, observation, lock);
  });
}

int QueuePair::post_one(const ibv_send_wr& request, QueuePairLock& lock) {
  const int failed = accept_one(request, lock);
  if (failed == 0) count_posted(request);
  return failed;
}

// The rules about calls have allowed it.
int QueuePair::post_observed(const ibv_send_wr& request, Observation& observation,
                             QueuePairLock& lock) {
  const std::uint64_t began_ns = TraceFile::now_ns();
  const int failed = observation.faults ? accept_with_faults(request, *observation.faults, lock)
                                        : accept_one(request, lock);
  if (failed != 0) return failed;
  count_posted(request);
  observation.watch.posted(request, began_ns);
  return 0;
}

// The rules choose among requests of a connection that works: others are flushed or refused.
int QueuePair::accept_with_faults(const ibv_send_wr& given, DeviceFaults& faults,
                                  QueuePairLock& lock) {
  const auto point = point_of(given.opcode);
  const bool fits = given.num_sge >= 0 && std::cmp_less_equal(given.num_sge, limits::max_slices);
  if (!point || !fits || handle_.qp.state != IBV_QPS_RTS) return accept_one(given, lock);
  const auto action =
      faults.request(*point, handle_.qp, end_of(given), length_of(given.sg_list, given.num_sge));
  if (!action) return accept_one(given, lock);
  if (action->kind == faults::ActionKind::failure &&
      action->failure() == faults::Failure::queue_pair_fatal) {
    const int refused = accept_one(given, lock);
    if (refused != 0) return refused;
    change_state(IBV_QPS_ERR, lock);
    parts_.raise(IBV_EVENT_QP_FATAL);
    return 0;
  }
  if (action->kind == faults::ActionKind::failure) {
    carrier_ ? carrier_->inject(*action, lock) : faults.add_pending(handle_.qp.qp_num, *action);
    return accept_one(given, lock);
  }
  const auto status = static_cast<ibv_wc_status>(action->value);
  const FailingSend failing(given, status);
  parts_.completions.replace_send_status(given.wr_id, status);
  const int failed = accept_one(failing.request(), lock);
  if (failed != 0) parts_.completions.give_up_send_status(given.wr_id);
  return failed;
}

ConnectionEnd QueuePair::end_of(const ibv_send_wr& request) const {
  if (!is_datagram()) return parts_.end;
  if (!request.wr.ud.ah) return {};
  return {.peer = gid_of(
              AddressHandle::of(request.wr.ud.ah)->route_to(request.wr.ud.remote_qpn).destination)};
}

// Checks the places of the queue here, because a request that is built and completed keeps its
// place until it is polled (queue_slots.h): the queue of the core may be empty while the program's
// is full.
int QueuePair::accept_one(const ibv_send_wr& given, QueuePairLock& lock) {
  Uninitialized<iwarp::LocalSlice, limits::max_slices> slices;
  SendRequest request;
  if (const int failed = check(given, slices.all(), request, lock)) return failed;
  if (parts_.completions.send_slots().full()) return ENOMEM;
  // In the error state a local request is flushed without being carried out, so it is not
  // remembered.
  if (handle_.qp.state == IBV_QPS_ERR || !is_local(request.work.operation)) {
    return accept(request, lock);
  }
  MemoryAccess::LocalRequest local;
  if (const int failed = translate_local(given, handle_.qp.context, local)) return failed;
  // Before accept(), which completes a request at once where the connection has ended, and then
  // takes the oldest one out of this list.
  parts_.memory.add(local);
  const int failed = accept(request, lock);
  if (failed != 0) parts_.memory.remove_newest();
  return failed;
}

// Whether a request may be posted at all; on success `request` is its translation.
int QueuePair::check(const ibv_send_wr& given, std::span<iwarp::LocalSlice> slices,
                     SendRequest& request, const QueuePairLock& lock) const {
  iwarp::WorkRequest& work = request.work;
  if (!operation_of(given.opcode, work.operation)) return is_datagram() ? EINVAL : EOPNOTSUPP;
  if ((missing_ >> static_cast<unsigned>(work.operation)) & 1) [[unlikely]] {
    return refuse_operation(work.operation);
  }
  const iwarp::QueueLimits& limits = parts_.limits;
  if (given.num_sge < 0 || static_cast<std::uint32_t>(given.num_sge) > limits.send_slices) {
    // A list that is longer than what was granted at creation (ibv_create_qp(3), max_send_sge).
    return EINVAL;
  }
  if (xrc_) return EINVAL;  // it has no send queue
  // ibv_post_send(3): an unreliable connection has no answers.
  if (parts_.is_unreliable() && is_answered(work.operation)) return EINVAL;
  if (is_datagram()) {
    const int failed = DatagramCarrier::check(given, handle_.qp, limits.inline_bytes);
    if (failed != 0) return failed;
  } else if (handle_.qp.state == IBV_QPS_ERR) {
    work.wr_id = given.wr_id;  // it is flushed, and the rest of it is not looked at
    return 0;
  }
  if (!takes_work(lock)) return EINVAL;
  if (work.operation == iwarp::Operation::send_immediate && !takes_send_immediate(lock)) {
    return EOPNOTSUPP;
  }
  // Only here the union of ibv_send_wr has this member.
  if (handle_.qp.qp_type == IBV_QPT_XRC_SEND) work.receive_queue = given.qp_type.xrc.remote_srqn;
  return translate(given, signal_all_, slices, request);
}

// An operation that the user has taken away from the device (Settings::adapter).
int QueuePair::refuse_operation(iwarp::Operation operation) const {
  const bool immediate = operation == iwarp::Operation::send_immediate ||
                         operation == iwarp::Operation::write_immediate;
  // Counts the refusal.
  (void)context().device().adapter().has(immediate ? Capability::immediates : Capability::atomics);
  return EOPNOTSUPP;
}

// Hands the request to the carrier, or keeps it until there is one that takes it.
int QueuePair::accept(const SendRequest& request, QueuePairLock& lock) {
  QueueSlots& slots = parts_.completions.send_slots();
  if (carrier_ && carrier_->takes_requests(lock)) {
    const int failed = carrier_->post(request, lock);
    if (failed == 0) slots.take();
    return failed;
  }
  // Requests in the error state take a place and are flushed at once: the InfiniBand specification
  // allows posting there.
  if (handle_.qp.state == IBV_QPS_ERR) {
    slots.take();
    flush_posted(request.work, lock);
    return 0;
  }
  // No carrier takes requests: the peer is not found yet, the responder waits for the initiator's
  // first FPDU (RFC 5044 §7.1), or the queue pair is in SQD.
  const int failed = error_of(parts_.waiting.post(parts_.limits, request.work));
  if (failed == 0) slots.take();
  return failed;
}

// A request that was posted in the error state. It completes behind those that the peer may still
// prove. A local request is in no list of MemoryAccess, so it waits as if it were another one.
void QueuePair::flush_posted(const iwarp::WorkRequest& work, const QueuePairLock& lock) {
  if (carrier_ && carrier_->closing(lock)) {
    const bool local = is_local(work.operation);
    return parts_.waiting.hold(work.wr_id, local ? iwarp::Operation::send : work.operation);
  }
  parts_.completions.add_send(
      {.wr_id = work.wr_id, .operation = work.operation, .status = iwarp::Status::flushed});
}

// A connected type accepts requests where a connection exists or will come, or where the lack of
// one is to be reported by their completions.
bool QueuePair::takes_work(const QueuePairLock& /*lock*/) const {
  // SQD accepts requests and starts none of them (InfiniBand Architecture Specification, volume 1,
  // "Send Queue Drain").
  const ibv_qp_state state = handle_.qp.state;
  if (is_datagram() && (state == IBV_QPS_SQE || state == IBV_QPS_ERR)) return true;
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return false;
  return carrier_ || search_.expects_stream();
}

// Queue pairs that connect by themselves have Weft peers only.
bool QueuePair::takes_send_immediate(const QueuePairLock& lock) const {
  return carrier_ ? carrier_->takes_send_immediate(lock) : search_.pairing() != nullptr;
}

// After a change of state: what can go out goes.
void QueuePair::advance(QueuePairLock& lock) {
  if (carrier_) {
    carrier_->advance(lock);
  } else {
    await_carrier(lock);
  }
}

void QueuePair::posted(QueuePairLock& lock) {
  if (carrier_) {
    carrier_->posted(lock);
  } else {
    await_carrier(lock);
  }
}

void QueuePair::count_posted(const ibv_send_wr& request) {
  QueuePairCounters& counters = parts_.completions.counters();
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return add_list(counters.writes, request.sg_list, request.num_sge);
    case IBV_WR_RDMA_READ:
      return add_list(counters.reads, request.sg_list, request.num_sge);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return add_list(counters.atomics, request.sg_list, request.num_sge);
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
      ++counters.local.operations;
      return;
    default:
      return add_list(counters.sends, request.sg_list, request.num_sge);
  }
}

void QueuePair::count_posted(const ibv_recv_wr& request) {
  add_list(parts_.completions.counters().receives, request.sg_list, request.num_sge);
}

void QueuePair::offer_batches(std::uint64_t operations) {
  batch_ = std::make_unique<SendBatch>(*this, operations);
  SendBatch::set_calls(handle_.extended);
}

// A window of type 1 gets a new key with each bind, whose low 8 bits count up (ibv_inc_rkey(3)), so
// that old copies of the key stop working. The window keeps its key where posting fails.
int QueuePair::bind_window(MemoryWindow& window, ibv_mw_bind& bind) {
  ibv_send_wr request{};
  request.wr_id = bind.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind.send_flags;
  request.bind_mw.mw = window.verbs();
  request.bind_mw.rkey = ibv_inc_rkey(window.verbs()->rkey);
  request.bind_mw.bind_info = bind.bind_info;
  ibv_send_wr* bad = nullptr;
  const int failed = post_send(&request, &bad);
  if (failed == 0) window.verbs()->rkey = request.bind_mw.rkey;
  return failed;
}

// --- Receives ------------------------------------------------------------------------------------

int QueuePair::post_receive(ibv_recv_wr* request, ibv_recv_wr** bad) {
  QueuePairLock lock(mutex_);
  int failed = 0;
  if (parts_.observation) [[unlikely]] {
    failed = post_observed_receives(request, bad);
  } else {
    failed = post_each(request, bad, [&](const ibv_recv_wr& one) { return post_one_receive(one); });
  }
  // Also after an error: the receives before the bad one are posted, and a message may wait for
  // them.
  if (carrier_) carrier_->receives_posted(lock);
  settle(lock);
  return failed;
}

int QueuePair::post_observed_receives(ibv_recv_wr* first, ibv_recv_wr** bad) {
  Observation& observation = *parts_.observation;
  return post_each(first, bad,
                   [&](const ibv_recv_wr& one) { return post_receive_observed(one, observation); });
}

int QueuePair::post_one_receive(const ibv_recv_wr& request) {
  const int failed = accept_receive(request);
  if (failed == 0) count_posted(request);
  return failed;
}

int QueuePair::post_receive_observed(const ibv_recv_wr& request, Observation& observation) {
  DeviceFaults* const faults = observation.faults;
  int failed = faults ? faults->call(faults::Point::post_receive, handle_.qp) : 0;
  if (failed != 0) return failed;
  failed = faults ? accept_receive_with_faults(request, *faults) : accept_receive(request);
  if (failed != 0) return failed;
  count_posted(request);
  observation.watch.posted(request, TraceFile::now_ns());
  return 0;
}

int QueuePair::accept_receive(const ibv_recv_wr& request) {
  const ibv_qp_state state = handle_.qp.state;
  // Receives may be posted from INIT on, so that they are there before the peer can send.
  if (parts_.receives.shared() || state == IBV_QPS_RESET) return EINVAL;
  // Neither end of XRC has a receive queue.
  if (xrc_ || handle_.qp.qp_type == IBV_QPT_XRC_SEND) return EINVAL;
  if (state == IBV_QPS_ERR) {
    QueueSlots& slots = parts_.receives.slots();
    if (slots.full()) return ENOMEM;
    slots.take();
    parts_.complete_receive({.wr_id = request.wr_id, .status = iwarp::Status::flushed});
    return 0;
  }
  return parts_.receives.post(request);
}

// The rules choose among receives that are neither refused nor flushed.
int QueuePair::accept_receive_with_faults(const ibv_recv_wr& request, DeviceFaults& faults) {
  const bool fits =
      request.num_sge >= 0 && std::cmp_less_equal(request.num_sge, limits::max_slices);
  const ibv_qp_state state = handle_.qp.state;
  const bool takes = !parts_.receives.shared() && state != IBV_QPS_RESET && state != IBV_QPS_ERR;
  if (!fits || !takes) return accept_receive(request);
  const auto action = faults.request(faults::Point::receive, handle_.qp, parts_.end,
                                     length_of(request.sg_list, request.num_sge));
  if (!action) return accept_receive(request);
  const FailingReceive failing(request);
  const auto status = static_cast<ibv_wc_status>(action->value);
  parts_.completions.replace_receive_status(request.wr_id, status);
  const int failed = accept_receive(failing.request());
  if (failed != 0) parts_.completions.give_up_receive_status(request.wr_id);
  return failed;
}

}  // namespace weft::device
