// The active side: rdma_connect(3), rdma_establish(3).
#include <cerrno>

#include "cm/depths.h"
#include "cm/identifier.h"
#include "cm/ports.h"
#include "cm/ready_timer.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

// As the kernel's iWARP connection manager sorts the errors of its drivers.
rdma_cm_event_type failure_event(int status) {
  switch (status) {
    case -ECONNREFUSED:
    case -ECONNRESET:
      return RDMA_CM_EVENT_REJECTED;
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
      return RDMA_CM_EVENT_UNREACHABLE;
    default:
      return RDMA_CM_EVENT_CONNECT_ERROR;
  }
}

}  // namespace

int Identifier::connect(ConnectWishes wishes) {
  if (is_datagram()) return connect_datagrams(wishes);
  std::shared_ptr<device::Dialer> dialer;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::routed) return EINVAL;
    external_queue_pair_ = handle_.id.qp == nullptr;
    std::shared_ptr<device::QueuePair> queue_pair;
    // A queue pair of the program's own need not exist before rdma_establish(3).
    if (choose_queue_pair(wishes.qp_num, queue_pair) == 0) queue_pair_ = queue_pair;
    asked_ord_ = wishes.initiator_depth;
    rnr_retries_ = wishes.rnr_retries;
    dialer_ = dialer = make_dialer(std::move(wishes));
    stage_ = Stage::connecting;
  }
  dialer->start();
  sockaddr_storage local{};
  const bool known = dialer->local_address(local);
  const std::lock_guard lock(mutex_);
  if (known && stage_ == Stage::connecting) note_source(local);
  return 0;
}

// The port is known from the first attempt on; a second one has another. The program reads these
// fields without our lock, so they are only written where they change.
void Identifier::note_source(const sockaddr_storage& tcp_address) {
  if (device::port_of(tcp_address) != device::port_of(tcp_source())) set_source(tcp_address);
}

std::shared_ptr<device::Dialer> Identifier::make_dialer(ConnectWishes wishes) {
  device::Device& device = registry_->context()->device();
  const device::Settings& settings = device.settings();
  device::Dialer::Plan plan;
  plan.source = tcp_source();
  plan.destination = to_tcp(handle_.id.route.addr.dst_storage, settings.port_offset);
  plan.reserved = std::move(reserved_);
  plan.tos = options_.tos;
  plan.handshake.crc = settings.crc;
  plan.handshake.ird = to_wire(wishes.responder_resources, settings.acknowledge);
  plan.handshake.ord = to_wire(wishes.initiator_depth, settings.acknowledge);
  plan.private_data = std::move(wishes.private_data);
  plan.connect_timeout_ns = registry_->options().connect_timeout_ns;
  plan.refused_ns = device::limits::refused_ns;
  plan.handshake_timeout_ns = registry_->options().handshake_timeout_ns;
  // Not make_shared: the engine's alarms remember it for long, and shall not keep its memory.
  // NOLINTNEXTLINE(modernize-make-shared)
  return std::shared_ptr<device::Dialer>(new device::Dialer(
      device, std::move(plan), [weak = weak_from_this()](device::Dialer::Outcome outcome) {
        if (const auto self = weak.lock()) self->on_dialed(std::move(outcome));
      }));
}

void Identifier::on_dialed(device::Dialer::Outcome outcome) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::connecting) return;
  dialer_.reset();
  if (outcome.fell_back) ++registry_->counters().revision_1_fallbacks;
  if (outcome.status != 0) return on_dial_failed(lock, outcome);
  negotiated_ = outcome.negotiated;
  sockaddr_storage local{};
  if (device::sys::local_address(outcome.socket.fd(), &local) >= 0) note_source(local);
  if (external_queue_pair_) {
    stage_ = Stage::responded;
    waiting_ = std::move(outcome.socket);
    return push_connected(RDMA_CM_EVENT_CONNECT_RESPONSE, outcome.private_data);
  }
  const int failed = attach(lock, std::move(outcome.socket), true);
  after_attach(failed, true, outcome.private_data);
}

void Identifier::on_dial_failed(std::unique_lock<std::mutex>& lock,
                                const device::Dialer::Outcome& outcome) {
  stage_ = Stage::ended;
  const auto queue_pair = queue_pair_.lock();
  if (queue_pair && failure_event(outcome.status) == RDMA_CM_EVENT_REJECTED) {
    // librdmacm takes the queue pair to the error state here: what is posted is flushed.
    lock.unlock();
    queue_pair->disconnect();
    lock.lock();
  }
  auto event = make_event(failure_event(outcome.status), outcome.status);
  if (outcome.rejected) event->set_private_data(outcome.private_data);
  push(std::move(event));
}

// No event follows on this side: the peer's ESTABLISHED is what this brings about.
int Identifier::establish() {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::responded || handle_.id.qp) return EINVAL;
  if (queue_pair_.expired()) {
    stage_ = Stage::ended;
    waiting_.close();
    return EINVAL;
  }
  const int failed = attach(lock, std::move(waiting_), true);
  after_attach(failed, false, {});
  return failed;
}

device::StreamParameters Identifier::agreed(bool initiator) {
  const bool acknowledge = registry_->settings().acknowledge;
  auto parameters = stream_parameters(initiator, negotiated_, asked_ord_, acknowledge);
  if (acknowledge && !parameters.acknowledge) {
    registry_->report_unacknowledged(device::to_string(handle_.id.route.addr.dst_storage));
  }
  // No hello: the application's private data stands where it would. The peer does not know of our
  // hold, and we go by what our own application says of the peer's Sends.
  parameters.receiver_not_ready.hold_bytes = registry_->context()->device().hold_bytes();
  parameters.receiver_not_ready.retries = rnr_retries_;
  return parameters;
}

int Identifier::attach(std::unique_lock<std::mutex>& lock, device::StreamSocket socket,
                       bool initiator) {
  const auto queue_pair = queue_pair_.lock();
  const device::StreamParameters parameters = agreed(initiator);
  stage_ =
      initiator || parameters.rtr == iwarp::RtrKind::none ? Stage::connected : Stage::accepting;
  attaching_ = true;
  ready_early_ = ended_early_ = false;
  lock.unlock();
  const int failed =
      queue_pair ? queue_pair->attach(std::move(socket), parameters, weak_from_this()) : EINVAL;
  lock.lock();
  attaching_ = false;
  return failed;
}

// With the lock held. The stream may have begun, and ended, while it was handed over: the events
// come in the order of what happened.
void Identifier::after_attach(int failed, bool tell_established, Bytes private_data) {
  if (stage_ == Stage::destroyed) return;
  if (failed != 0) {
    stage_ = Stage::ended;
    if (tell_established) push(RDMA_CM_EVENT_CONNECT_ERROR, -failed);
    return;
  }
  if (ready_early_) stage_ = Stage::connected;
  if (stage_ == Stage::connected) {
    ++(ready_timer_ ? registry_->counters().connections_passive
                    : registry_->counters().connections_active);
    if (tell_established) push_connected(RDMA_CM_EVENT_ESTABLISHED, private_data);
  }
  if (!ended_early_) return;
  const bool was_connected = stage_ == Stage::connected;
  stage_ = Stage::ended;
  was_connected ? push(RDMA_CM_EVENT_DISCONNECTED) : push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
}

}  // namespace weft::cm
