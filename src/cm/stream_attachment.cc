#include "cm/stream_attachment.h"

#include <cerrno>
#include <utility>

#include "cm/depths.h"
#include "cm/identifier.h"
#include "cm/qp_attributes.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {

// rdma_conn_param::qp_num names a queue pair that the program has created without
// rdma_create_qp(3).
int StreamAttachment::find_queue_pair(std::uint32_t number,
                                      std::shared_ptr<device::QueuePair>& found) {
  ibv_qp* const own = state_.handle.id.qp;
  found = own ? device::QueuePair::of(own)->shared_from_this()
              : state_.registry->context()->find_queue_pair(number);
  // iWARP has no numbers. InfiniBand's have 24 bits, and some have a meaning of their own.
  const bool possible = number > 1 && number < 0xFF'FFFF;
  bare_ = !found && possible && state_.registry->context()->device().is_roce();
  return found || bare_ ? 0 : EINVAL;
}

void StreamAttachment::request(const ConnectParameters& parameters) {
  state_.requested_ord = parameters.initiator_depth;
  rnr_retries_ = parameters.rnr_retries;
  const auto queue_pair = queue_pair_.lock();
  if (!queue_pair) return;
  int mask = 0;
  const ibv_qp_attr attributes = connection_attributes(state_, parameters, mask);
  queue_pair->take_attributes(attributes, mask);
}

void StreamAttachment::push_connected(rdma_cm_event_type type, Bytes private_data, bool reply) {
  auto event = state_.make_event(type);
  event->event.param.conn.responder_resources = to_event(negotiated_.ird);
  event->event.param.conn.initiator_depth = to_event(negotiated_.ord);
  if (reply) state_.set_retries(event->event.param.conn);
  event->set_private_data(private_data,
                          reply ? state_.least_private_data(InfinibandPrivateData::reply) : 0);
  state_.push(std::move(event));
}

device::StreamParameters StreamAttachment::parameters(bool initiator) {
  const bool acknowledge = state_.registry->settings().acknowledge;
  auto parameters = stream_parameters(initiator, negotiated_, state_.requested_ord, acknowledge);
  if (acknowledge && !parameters.acknowledge) {
    state_.registry->report_unacknowledged(device::to_string(state_.addresses().dst_storage));
  }
  // There is no hello, because the private data belongs to the application. The retries of the
  // peer's Sends are what our own application passed.
  parameters.receiver_not_ready.hold_bytes = state_.registry->context()->device().hold_bytes();
  parameters.receiver_not_ready.retries = rnr_retries_;
  return parameters;
}

// Peer to peer, the passive side is connected when the peer's first FPDU arrives (RFC 6581 §9).
// Otherwise it is at once, since that FPDU may take any time.
int StreamAttachment::attach(std::unique_lock<std::mutex>& lock, device::StreamSocket socket,
                             const Plan& plan) {
  const bool peer_to_peer = negotiated_.rtr != iwarp::RtrKind::none;
  state_.stage = plan.initiator || !peer_to_peer ? Stage::connected : Stage::accepting;
  attaching_ = true;
  ready_early_ = ended_early_ = false;
  const int failed = hand_over(lock, std::move(socket), plan.initiator);
  attaching_ = false;
  after_attach(failed, plan);
  return failed;
}

// The lock is released meanwhile. The observer is this object, kept alive by its id.
int StreamAttachment::hand_over(std::unique_lock<std::mutex>& lock, device::StreamSocket socket,
                                bool initiator) {
  const auto queue_pair = queue_pair_.lock();
  const device::StreamParameters agreed = parameters(initiator);
  const std::weak_ptr<device::ConnectionObserver> observer =
      std::shared_ptr<device::ConnectionObserver>(state_.owner().lock(), this);
  int failed = EINVAL;
  std::shared_ptr<device::BareStream> bare;
  lock.unlock();
  if (queue_pair) {
    failed = queue_pair->attach(std::move(socket), agreed, observer);
  } else if (bare_) {
    device::Device& device = state_.registry->context()->device();
    bare = device::BareStream::start(device, std::move(socket), agreed, observer);
    failed = bare ? 0 : ENOMEM;
  }
  lock.lock();
  bare_stream_ = bare;
  return failed;
}

std::function<void()> StreamAttachment::disconnection() const {
  return [queue_pair = queue_pair_.lock(), bare = bare_stream_] {
    if (queue_pair) queue_pair->disconnect();
    if (bare) bare->disconnect();
  };
}

void StreamAttachment::abandon_after_fork() {
  if (bare_stream_) bare_stream_->abandon_after_fork();
}

// The stream may have begun, and ended, while it was handed over. The events for this are pushed
// here, in the order of what happened.
void StreamAttachment::after_attach(int failed, const Plan& plan) {
  if (state_.stage == Stage::destroyed) return;
  if (failed != 0) {
    state_.stage = Stage::ended;
    if (plan.report) state_.push(RDMA_CM_EVENT_CONNECT_ERROR, -failed);
    return;
  }
  if (ready_early_) state_.stage = Stage::connected;
  if (state_.stage == Stage::connected) {
    LiveCounters& counters = state_.registry->counters();
    ++(plan.initiator ? counters.connections_active : counters.connections_passive);
    if (plan.report) {
      push_connected(RDMA_CM_EVENT_ESTABLISHED, plan.private_data, plan.initiator);
    }
  }
  if (!ended_early_) return;
  const bool was_connected = state_.stage == Stage::connected;
  state_.stage = Stage::ended;
  was_connected ? state_.push_disconnected()
                : state_.push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
}

// The passive side waits for this; the active side is connected already.
void StreamAttachment::on_stream_ready() {
  const std::lock_guard lock(state_.mutex);
  if (attaching_) {
    ready_early_ = true;
    return;
  }
  if (state_.stage != Stage::accepting) return;
  state_.stage = Stage::connected;
  ++state_.registry->counters().connections_passive;
  push_connected(RDMA_CM_EVENT_ESTABLISHED, {}, false);
}

// DISCONNECTED follows only an ESTABLISHED. A connection that ends before is a CONNECT_ERROR.
//
// On an adapter a disconnection is reported tens of microseconds after the last completion, so a
// program that polls finds that first. Here both may arrive in one segment. A program that takes
// its events before it polls would destroy the queue pair together with its last completions
// (libfabric's rxm). So the event waits until they are polled.
void StreamAttachment::on_stream_ended(iwarp::EndReason reason) {
  const std::lock_guard lock(state_.mutex);
  if (attaching_) {
    ended_early_ = true;
    return;
  }
  const Stage last = state_.stage;
  if (last == Stage::accepting) state_.push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  if (last == Stage::accepting || last == Stage::connected) state_.stage = Stage::ended;
  if (last != Stage::connected) return;
  end_due_ns_ = device::sys::now_ns() + state_.registry->settings().disconnect.unpolled_ns;
  const bool by_peer = reason != iwarp::EndReason::local_close && !disconnected_;
  by_peer && !may_report_end() ? report_end_later() : state_.push_disconnected();
}

// Takes the lock of the queue pair below that of the id, which is safe because the call below calls
// nothing back.
bool StreamAttachment::may_report_end() const {
  const auto queue_pair = queue_pair_.lock();
  return !queue_pair || device::sys::now_ns() >= end_due_ns_ || !queue_pair->has_unpolled_success();
}

void StreamAttachment::report_end_later() {
  late_end_ =
      device::DelayedCall::start(state_.registry->context()->engine(),
                                 device::limits::unpolled_look_ns, [weak = state_.owner(), this] {
                                   const auto id = weak.lock();  // this object is a part of it
                                   if (!id) return;
                                   const std::lock_guard lock(state_.mutex);
                                   if (!late_end_) return;
                                   may_report_end() ? report_end() : report_end_later();
                                 });
}

void StreamAttachment::note_disconnection() {
  disconnected_ = true;
  report_end();
}

void StreamAttachment::report_end() {
  if (std::exchange(late_end_, nullptr)) state_.push_disconnected();
}

}  // namespace weft::cm
