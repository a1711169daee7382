// The states of a queue pair and its attributes: ibv_modify_qp(3), ibv_query_qp(3).
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/caller_explains.h"
#include "base/log.h"
#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/lid.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/transitions.h"
#include "device/route.h"

namespace weft::device {
namespace {

// The peer's address, and the attributes of the path to it: rdma_init_qp_attr(3) gives an iWARP
// queue pair none of them, so they come from a program that connects by address and number.
constexpr int peer_attributes = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_SQ_PSN;

// Refuses the step here, because many programs do not check a later ibv_post_send(3), and names the
// remedy on stderr, once for each process.
int refuse_without_connection() {
  static std::atomic_flag printed;
  if (!CallerExplains::active() && !printed.test_and_set()) {
    log_format(LogLevel::warning, "weft0",
               "an iWARP queue pair is connected by rdma_cm only; a program that connects by GID "
               "and number needs `weft run --personality roce`, one that knows LIDs only "
               "`weft run --personality ib`");
  }
  return EINVAL;
}

// Kernels with RoCE look the route up in ibv_modify_qp(3), because they need the next hop's
// address. From an address to itself there is always one. A lack of sockets is no answer: the
// connection is attempted all the same.
int check_route(const Pairing::Plan& plan) {
  if (same_host_address(plan.source, plan.destination)) return 0;
  sockaddr_storage source = plan.source;
  const int failed = choose_source(plan.destination, source);
  if (failed == EINVAL) return ENETUNREACH;  // from a loopback address to another network
  return failed == ENETUNREACH || failed == EHOSTUNREACH ? failed : 0;
}

}  // namespace

// Checks everything before it changes anything: after an error the queue pair is as it was.
// Carriers learn of changed attributes last, when the state and the carrier are the new ones.
int QueuePair::modify(const ibv_qp_attr& attributes, int mask) {
  QueuePairLock lock(mutex_);
  const ibv_qp_state current = handle_.qp.state;
  if ((mask & IBV_QP_CUR_STATE) && attributes.cur_qp_state != current) return EINVAL;
  const ibv_qp_state next = (mask & IBV_QP_STATE) ? attributes.qp_state : current;
  const bool roce = context().device().is_roce();
  // INIT is where an iWARP queue pair starts, so a step to INIT changes nothing.
  const ibv_qp_state from = current == IBV_QPS_RESET && !roce ? IBV_QPS_INIT : current;
  // A connection manager may have connected us before the program walks through the states.
  const bool connected = carrier_ && !is_datagram() && !search_.pairing();
  // Such a step is accepted with its attributes and changes no state, since the program would
  // otherwise move an established connection back.
  const bool walk = connected && current == IBV_QPS_RTS && (mask & IBV_QP_STATE) &&
                    (next == IBV_QPS_RTR || next == IBV_QPS_RTS);
  if (!walk) {
    if (const int failed = check_transition(handle_.qp.qp_type, from, next, mask, roce)) {
      return failed;
    }
  }
  const bool connects = next == IBV_QPS_RTR || next == IBV_QPS_RTS;
  // Without a connection nothing could carry the work, and no address attribute has a meaning for
  // iWARP.
  if (!roce && !connected && connects && (mask & peer_attributes) != 0) {
    return refuse_without_connection();
  }
  if (const int failed = check_attributes(attributes, mask, next)) return failed;
  apply(attributes, mask);
  const int failed = walk ? 0 : change_state(next, lock);
  const bool retries = (mask & (IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER)) != 0;
  if (retries && carrier_) carrier_->retry_attributes_changed(lock);
  if ((mask & IBV_QP_ACCESS_FLAGS) && carrier_) carrier_->access_changed(lock);
  settle(lock);
  return failed;
}

// The device has one port, and one P_Key at index 0. max_rd_atomic is limited by IRD and ORD of MPA
// (RFC 6581), of which the device keeps one for itself.
int QueuePair::check_attributes(const ibv_qp_attr& attributes, int mask, ibv_qp_state next) const {
  if ((mask & IBV_QP_PORT) && attributes.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) && attributes.pkey_index != 0) return EINVAL;
  Adapter& adapter = context().device().adapter();
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) &&
      !adapter.grants(Capability::read_depth, attributes.max_rd_atomic)) {
    return EINVAL;
  }
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
      !adapter.grants(Capability::read_depth, attributes.max_dest_rd_atomic)) {
    return EINVAL;
  }
  const bool pairs = context().device().is_roce() && !is_datagram() && next == IBV_QPS_RTR &&
                     handle_.qp.state == IBV_QPS_INIT &&
                     attributes.dest_qp_num != slot::stream_of_cm;
  // The rest concerns the step to RTR in which a queue pair gets its peer. The optional steps to
  // RTR of rdma_cm have no peer to check.
  if (!pairs) return 0;
  if (attributes.dest_qp_num > 0xFFFFFF) return EINVAL;
  if (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > IBV_MTU_4096) return EINVAL;
  Pairing::Plan plan;
  const int failed = Pairing::make_plan(context().device(), handle_.qp.qp_num, attributes, plan);
  return failed != 0 ? failed : check_route(plan);
}

// Fields of `given` that the mask does not name may be uninitialized: ibv_modify_qp(3).
void QueuePair::apply(const ibv_qp_attr& given, int mask) {
  ibv_qp_attr& attributes = parts_.attributes;
  if (mask & IBV_QP_QKEY) attributes.qkey = given.qkey;
  if (mask & IBV_QP_ACCESS_FLAGS) {
    attributes.qp_access_flags = given.qp_access_flags & context().device().grantable_access();
  }
  if (mask & IBV_QP_PATH_MTU) attributes.path_mtu = given.path_mtu;
  if (mask & IBV_QP_DEST_QPN) attributes.dest_qp_num = given.dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) attributes.rq_psn = given.rq_psn;
  if (mask & IBV_QP_SQ_PSN) attributes.sq_psn = given.sq_psn;
  if (mask & IBV_QP_AV) {
    attributes.ah_attr = given.ah_attr;
    // Rules of injected faults choose peers by their address.
    const Device& device = context().device();
    const bool has_path = given.ah_attr.is_global || device.has_lids();
    PathEnds ends;
    if (has_path && path_ends(device, given.ah_attr, ends) == 0) parts_.end.peer = ends.destination;
  }
  if (mask & IBV_QP_TIMEOUT) attributes.timeout = given.timeout;
  if (mask & IBV_QP_RETRY_CNT) attributes.retry_cnt = given.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) attributes.rnr_retry = given.rnr_retry;
  if (mask & IBV_QP_MIN_RNR_TIMER) attributes.min_rnr_timer = given.min_rnr_timer;
  if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) {
    due_event_.reset();
    if (given.en_sqd_async_notify != 0) due_event_ = IBV_EVENT_SQ_DRAINED;
  }
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) attributes.max_rd_atomic = given.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) attributes.max_dest_rd_atomic = given.max_dest_rd_atomic;
}

void QueuePair::take_attributes(const ibv_qp_attr& attributes, int mask) {
  const QueuePairLock lock(mutex_);
  apply(attributes, mask);
}

// RTR, and not RTS, begins the search: a queue pair receives and answers reads from RTR on, and
// many servers stay there.
int QueuePair::change_state(ibv_qp_state next, QueuePairLock& lock) {
  switch (next) {
    case IBV_QPS_RESET:
      reset(lock);
      break;
    case IBV_QPS_ERR:
      enter_error(lock);
      break;
    case IBV_QPS_RTR:
      handle_.qp.state = next;
      // IBV_EVENT_COMM_EST is raised once for each life of the connection.
      parts_.arrived = false;
      if (context().device().is_roce() && !is_datagram()) search_.begin(weak_from_this(), lock);
      break;
    // The peer's queue pair learns our first PSN only now: Pairing compares it with the address
    // vector of the peer.
    case IBV_QPS_RTS:
      handle_.qp.state = next;
      search_.ready_to_send(lock);
      advance(lock);  // what was posted in SQD
      break;
    case IBV_QPS_SQD:
      if (carrier_) carrier_->advance(lock);  // what was posted before, and waits for others
      handle_.qp.state = next;
      break;
    default:
      handle_.qp.state = next;
      break;
  }
  return 0;
}

// Back to the start: nothing completes, whatever was posted is forgotten (ibv_modify_qp(3)).
// The carrier goes first, because its end makes completions, which must be dropped as well; posted
// receives and their places go last.
void QueuePair::reset(QueuePairLock& lock) {
  drop_carrier(lock);
  if (due_event_) raise_due(lock);
  due_event_.reset();
  search_.end(lock);
  search_.restart(lock);
  parts_.waiting.clear();
  parts_.completions.drop();
  parts_.completions.withdraw();
  parts_.receives.clear();
  parts_.memory.clear();
  parts_.completions.send_slots().clear();
  handle_.qp.state = initial_state();
}

// Everything that is posted completes, as flushed where the end of the connection gives no other
// status.
void QueuePair::enter_error(QueuePairLock& lock) {
  const bool first = std::exchange(handle_.qp.state, IBV_QPS_ERR) != IBV_QPS_ERR;
  // A queue pair in ERR does not drain. The receives of a shared queue are not flushed: the event
  // states that this queue pair takes no more of them (ibv_get_async_event(3)).
  if (first) due_event_.reset();
  if (first && parts_.receives.shared()) due_event_ = IBV_EVENT_QP_LAST_WQE_REACHED;
  // No new connection may come while the old work is flushed.
  search_.end(lock);
  // Requests that were sent may still be proven: they complete when the carrier ends, and then this
  // function is called again.
  if (carrier_ && carrier_->closing(lock)) return parts_.flush_receives();
  // Requests under way were posted before those that wait, so they complete first.
  if (carrier_) carrier_->flush(lock);
  parts_.flush_waiting();
  parts_.flush_receives();
  drop_carrier(lock);
}

// Programs free what the completions before such an event need, so the program can poll those by
// now. A carrier that is closing may still complete what it has received.
void QueuePair::raise_due(QueuePairLock& lock) {
  const bool drained = *due_event_ == IBV_EVENT_SQ_DRAINED;
  if (drained ? handle_.qp.state != IBV_QPS_SQD || draining(lock) : carrier_ != nullptr) return;
  parts_.raise(*std::exchange(due_event_, std::nullopt));
}

bool QueuePair::draining(const QueuePairLock& lock) const {
  return carrier_ && !carrier_->requests_done(lock);
}

// ibv_query_qp(3) may be asked for less by its mask, but filling in more is allowed.
void QueuePair::query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) {
  const QueuePairLock lock(mutex_);
  attributes = parts_.attributes;
  attributes.qp_state = attributes.cur_qp_state = handle_.qp.state;
  attributes.sq_draining = handle_.qp.state == IBV_QPS_SQD && draining(lock) ? 1 : 0;
  initial = {};
  initial.qp_context = handle_.qp.qp_context;
  initial.send_cq = handle_.qp.send_cq;
  initial.recv_cq = handle_.qp.recv_cq;
  initial.srq = handle_.qp.srq;
  initial.cap = parts_.attributes.cap;
  initial.qp_type = handle_.qp.qp_type;
  initial.sq_sig_all = signal_all_ ? 1 : 0;
}

}  // namespace weft::device
