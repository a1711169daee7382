// Asynchronous events of a queue pair: ibv_get_async_event(3).
#include "device/queue_pair/queue_pair.h"

namespace weft::device {

void QueuePair::raise(ibv_event_type type) {
  if (destroyed_) return;
  ibv_async_event event{};
  event.element.qp = &handle_.qp;
  event.event_type = type;
  context_.raise(event);
}

// The first message that arrives while the program is still on its way to RTS.
void QueuePair::note_communication() {
  if (handle_.qp.state != IBV_QPS_RTR || communicating_) return;
  communicating_ = true;
  raise(IBV_EVENT_COMM_EST);
}

// What we refused a peer may show in no completion of ours.
void QueuePair::note_refusal(wire::TerminateCode code) {
  namespace terminate = wire::terminate;
  if (code.layer <= 1 && code.type == 1) {
    raise(IBV_EVENT_QP_ACCESS_ERR);
  } else if (code == terminate::rdma_unexpected_opcode ||
             code == terminate::untagged_invalid_queue) {
    raise(IBV_EVENT_QP_REQ_ERR);
  }
}

// In SQD: everything posted before has completed.
void QueuePair::note_drained() {
  if (!drain_notice_ || handle_.qp.state != IBV_QPS_SQD || draining()) return;
  drain_notice_ = false;
  raise(IBV_EVENT_SQ_DRAINED);
}

bool QueuePair::draining() const {
  return stream_ && !stream_->requests_done();
}

}  // namespace weft::device
