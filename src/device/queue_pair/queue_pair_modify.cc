// The states of a queue pair and its attributes: ibv_modify_qp(3), ibv_query_qp(3).
#include <cerrno>

#include "device/connect/slots.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/queue_pair_state.h"
#include "device/queue_pair/queue_pair_turn.h"

namespace weft::device {

int QueuePair::modify(const ibv_qp_attr& attributes, int mask) {
  const Turn turn(*this);
  const ibv_qp_state current = handle_.qp.state;
  if ((mask & IBV_QP_CUR_STATE) && attributes.cur_qp_state != current) return EINVAL;
  const ibv_qp_state next = (mask & IBV_QP_STATE) ? attributes.qp_state : current;
  const bool roce = context_.device().is_roce();
  // INIT is where an iWARP queue pair starts, so being told to go there is no change.
  const ibv_qp_state from = current == IBV_QPS_RESET && !roce ? IBV_QPS_INIT : current;
  // A connection manager may have connected us before the program walks through the states.
  const bool walk = stream_ && !pairing_ && current == IBV_QPS_RTS && (mask & IBV_QP_STATE) &&
                    (next == IBV_QPS_RTR || next == IBV_QPS_RTS);
  if (!walk) {
    if (const int failed = check_transition(handle_.qp.qp_type, from, next, mask, roce)) {
      return failed;
    }
  }
  if (const int failed = check_attributes(attributes, mask, next)) return failed;
  apply(attributes, mask);
  const int failed = walk ? 0 : change_state(next);
  if (mask & (IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER)) tell_patience();
  return failed;
}

int QueuePair::check_attributes(const ibv_qp_attr& attributes, int mask, ibv_qp_state next) const {
  if ((mask & IBV_QP_PORT) && attributes.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) && attributes.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attributes.max_rd_atomic > limits::max_read_depth) {
    return EINVAL;
  }
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
      attributes.max_dest_rd_atomic > limits::max_read_depth) {
    return EINVAL;
  }
  const bool pairs = context_.device().is_roce() && !is_datagram() && next == IBV_QPS_RTR &&
                     handle_.qp.state == IBV_QPS_INIT &&
                     attributes.dest_qp_num != slot::stream_of_cm;
  if (!pairs) return 0;
  if (attributes.dest_qp_num > 0xFFFFFF) return EINVAL;
  if (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > IBV_MTU_4096) return EINVAL;
  Pairing::Plan plan;
  return Pairing::make_plan(context_.device(), handle_.qp.qp_num, attributes, plan);
}

void QueuePair::apply(const ibv_qp_attr& given, int mask) {
  if (mask & IBV_QP_QKEY) attributes_.qkey = given.qkey;
  if (mask & IBV_QP_ACCESS_FLAGS) attributes_.qp_access_flags = given.qp_access_flags;
  if (mask & IBV_QP_PATH_MTU) attributes_.path_mtu = given.path_mtu;
  if (mask & IBV_QP_DEST_QPN) attributes_.dest_qp_num = given.dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) attributes_.rq_psn = given.rq_psn;
  if (mask & IBV_QP_SQ_PSN) attributes_.sq_psn = given.sq_psn;
  if (mask & IBV_QP_AV) attributes_.ah_attr = given.ah_attr;
  if (mask & IBV_QP_TIMEOUT) attributes_.timeout = given.timeout;
  if (mask & IBV_QP_RETRY_CNT) attributes_.retry_cnt = given.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) attributes_.rnr_retry = given.rnr_retry;
  if (mask & IBV_QP_MIN_RNR_TIMER) attributes_.min_rnr_timer = given.min_rnr_timer;
  if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) drain_notice_ = given.en_sqd_async_notify != 0;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) attributes_.max_rd_atomic = given.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) attributes_.max_dest_rd_atomic = given.max_dest_rd_atomic;
}

void QueuePair::set_timeout(std::uint8_t timeout) {
  const std::lock_guard lock(mutex_);
  attributes_.timeout = timeout;
}

int QueuePair::change_state(ibv_qp_state next) {
  switch (next) {
    case IBV_QPS_RESET:
      reset();
      break;
    case IBV_QPS_ERR:
      if (stream_ && !stream_->ended()) stream_->close();
      enter_error();
      break;
    case IBV_QPS_RTR:
      handle_.qp.state = next;
      communicating_ = false;
      if (context_.device().is_roce() && !is_datagram()) begin_pairing();
      break;
    case IBV_QPS_RTS:
      handle_.qp.state = next;
      stream_ ? finish_turn() : await_stream();  // what was posted in SQD
      send_datagrams();
      break;
    case IBV_QPS_SQD:
      handle_.qp.state = next;
      note_drained();
      break;
    default:
      handle_.qp.state = next;
      break;
  }
  return 0;
}

// Back to the start: nothing completes, whatever was posted is forgotten (ibv_modify_qp(3)).
void QueuePair::reset() {
  if (stream_ && !stream_->ended()) stream_->close();
  leave_stream();
  end_pairing();
  waiting_.clear();
  forget_datagrams();
  drop_pending();
  send_queue_->forget(handle_.qp.qp_num);
  receive_queue_->forget(handle_.qp.qp_num);
  receives_.clear();
  local_work_.clear();
  send_slots_.clear();
  handle_.qp.state = context_.device().is_roce() ? IBV_QPS_RESET : IBV_QPS_INIT;
}

void QueuePair::query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) {
  const std::lock_guard lock(mutex_);
  attributes = attributes_;
  attributes.qp_state = attributes.cur_qp_state = handle_.qp.state;
  attributes.sq_draining = handle_.qp.state == IBV_QPS_SQD && draining() ? 1 : 0;
  initial = {};
  initial.qp_context = handle_.qp.qp_context;
  initial.send_cq = handle_.qp.send_cq;
  initial.recv_cq = handle_.qp.recv_cq;
  initial.srq = handle_.qp.srq;
  initial.cap = attributes_.cap;
  initial.qp_type = handle_.qp.qp_type;
  initial.sq_sig_all = signal_all_ ? 1 : 0;
}

}  // namespace weft::device
