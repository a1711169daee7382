#include "cm/active_side.h"

#include <cerrno>

#include "base/caller_explains.h"
#include "base/log.h"
#include "cm/depths.h"
#include "cm/identifier.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

// Sorts errors into events as the kernel's iWARP connection manager does with those of its drivers.
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

// The peer accepts TCP connections, but what it does then is not what an rdma_cm listener would do.
bool speaks_no_mpa(iwarp::HandshakeFailure failure) {
  return failure == iwarp::HandshakeFailure::not_mpa ||
         failure == iwarp::HandshakeFailure::closed ||
         failure == iwarp::HandshakeFailure::timed_out;
}

}  // namespace

// The dialer is started without the lock, since it may call on_dialed() at once.
int ActiveSide::connect(ConnectParameters parameters, device::sys::Descriptor& reserved) {
  std::shared_ptr<device::Dialer> dialer;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::routed) return EINVAL;
    external_queue_pair_ = state_.handle.id.qp == nullptr;
    caller_explains_ = CallerExplains::active();
    std::shared_ptr<device::QueuePair> queue_pair;
    // A queue pair of the program's own need not exist before rdma_establish(3).
    if (stream_.find_queue_pair(parameters.qp_num, queue_pair) == 0) stream_.use(queue_pair);
    stream_.request(parameters);
    if (external_queue_pair_) queue_pair.reset();
    dialer_ = dialer = make_dialer(std::move(parameters), queue_pair, reserved);
    state_.stage = Stage::connecting;
  }
  // A rule of faults takes the place of the attempt. The dialer exists already, because a rule may
  // also only delay its start.
  if (const auto fault = state_.fault_at(faults::Point::connect, state_.tcp_destination()))
      [[unlikely]] {
    connect_with_fault(*fault, dialer);
    return 0;
  }
  dialer->start();
  sockaddr_storage local{};
  const bool known = dialer->local_address(local);
  const std::lock_guard lock(state_.mutex);
  // The stage is checked again, because on_dialed() may have run since the lock was released.
  if (known && state_.stage == Stage::connecting) note_source(local);
  return 0;
}

// The first attempt determines the port, and a second one has another. The program reads these
// fields without our lock, so they are written only where they change.
void ActiveSide::note_source(const sockaddr_storage& tcp_address) {
  if (device::port_of(tcp_address) != device::port_of(state_.tcp_source())) {
    state_.set_source(tcp_address);
  }
}

std::uint64_t ActiveSide::reply_timeout_ns() const {
  if (state_.options.reply_timeout_ns != 0) return state_.options.reply_timeout_ns;
  const Options& options = state_.registry->options();
  const bool adapter_of_iwarp =
      state_.registry->settings().personality == device::Personality::iwarp;
  return options.reply_timeout_ns.value_or(adapter_of_iwarp ? options.handshake_timeout_ns
                                                            : device::limits::reply_ns);
}

std::shared_ptr<device::Dialer> ActiveSide::make_dialer(
    ConnectParameters parameters, const std::shared_ptr<device::QueuePair>& queue_pair,
    device::sys::Descriptor& reserved) {
  device::Device& device = state_.registry->context()->device();
  const device::Settings& settings = device.settings();
  device::Dialer::Plan plan;
  plan.source = state_.tcp_source();
  plan.destination = state_.tcp_destination();
  plan.reserved = std::move(reserved);
  plan.tos = state_.options.tos;
  plan.handshake.crc = settings.crc;
  plan.handshake.mark = true;
  plan.handshake.words = device.offers_words();
  const ibv_qp_type own_type = state_.handle.id.qp_type;
  plan.handshake.extended =
      (queue_pair ? queue_pair->verbs()->qp_type : own_type) == IBV_QPT_XRC_SEND;
  plan.handshake.ird = to_wire(parameters.responder_resources);
  plan.handshake.ord = to_wire(parameters.initiator_depth);
  plan.private_data = std::move(parameters.private_data);
  plan.connect_timeout_ns = state_.registry->options().connect_timeout_ns;
  const bool near = device::stays_on_host(plan.source, plan.destination);
  plan.refused_ns = state_.options.refused_ns.value_or(near ? device::limits::refused_ns
                                                            : device::limits::refused_far_ns);
  plan.handshake_timeout_ns = reply_timeout_ns();
  plan.notice_ns = state_.registry->options().handshake_timeout_ns;
  if (!caller_explains_)
    plan.late = [registry = state_.registry, to = plan.destination] {
      registry->report_no_reply(to);
    };
  if (queue_pair) plan.pair = queue_pair->pair_terms();
  plan.sharing = queue_pair;
  // The callback holds the id weakly, so that a pending attempt does not keep it alive. `this`
  // belongs to the id, and is valid while the pointer can be locked.
  // Not make_shared: the engine keeps weak pointers to it for long, which would keep its memory.
  // NOLINTNEXTLINE(modernize-make-shared)
  return std::shared_ptr<device::Dialer>(new device::Dialer(
      device, std::move(plan), [weak = state_.owner(), this](device::Dialer::Outcome outcome) {
        if (const auto owner = weak.lock()) on_dialed(std::move(outcome));
      }));
}

// Called once, when the handshake has succeeded or failed. A cancelled dialer does not call it, but
// it may be on its way here when the id is destroyed.
void ActiveSide::on_dialed(device::Dialer::Outcome outcome) {
  std::unique_lock lock(state_.mutex);
  if (state_.stage != Stage::connecting) return;
  dialer_.reset();
  if (outcome.fell_back) ++state_.registry->counters().revision_1_fallbacks;
  if (outcome.status != 0) return on_dial_failed(lock, outcome);
  stream_.set_negotiated(outcome.negotiated);
  note_source(outcome.socket.ends().local);
  if (external_queue_pair_) {
    state_.stage = Stage::responded;
    response_ = std::make_unique<device::StreamSocket>(std::move(outcome.socket));
    return stream_.push_connected(RDMA_CM_EVENT_CONNECT_RESPONSE, outcome.private_data, true);
  }
  stream_.attach(lock, std::move(outcome.socket),
                 {.initiator = true, .private_data = outcome.private_data});
}

void ActiveSide::report_not_extended() const {
  log_format(LogLevel::warning, "rdma_cm",
             "%s has accepted, but not for an extended connection (XRC): it is an older version of "
             "Weft",
             device::to_string(state_.tcp_destination()).c_str());
}

// REJECTED stands for a rejection by the peer's program as well as for a refusal by TCP. Only the
// former has private data.
void ActiveSide::on_dial_failed(std::unique_lock<std::mutex>& lock,
                                const device::Dialer::Outcome& outcome) {
  if (speaks_no_mpa(outcome.handshake) && !caller_explains_) {
    state_.registry->report_no_mpa(state_.tcp_destination(), outcome.handshake);
  }
  if (outcome.handshake == iwarp::HandshakeFailure::not_extended) report_not_extended();
  end(lock, failure_event(outcome.status));
  auto event = state_.make_event(failure_event(outcome.status), outcome.status);
  if (outcome.rejected) {
    event->set_private_data(outcome.private_data,
                            state_.least_private_data(InfinibandPrivateData::rejection));
  }
  state_.push(std::move(event));
}

void ActiveSide::end(std::unique_lock<std::mutex>& lock, rdma_cm_event_type type) {
  state_.stage = Stage::ended;
  const auto queue_pair = stream_.queue_pair();
  if (!queue_pair || type != RDMA_CM_EVENT_REJECTED) return;
  // librdmacm takes the queue pair to the error state here, so that posted requests are flushed.
  lock.unlock();
  queue_pair->disconnect();
  lock.lock();
}

// Without the lock. The events come from the engine, as those of a dialer do.
void ActiveSide::connect_with_fault(const faults::Action& fault,
                                    const std::shared_ptr<device::Dialer>& dialer) {
  // A delay starts the dialer later. Silence ends as an unanswered handshake does, after its
  // timeout. All other failures are reported without a pause.
  const bool late = fault.failure() == faults::Failure::delay;
  const bool silent = fault.failure() == faults::Failure::silence;
  const std::uint64_t pause_ns = late     ? static_cast<std::uint64_t>(fault.argument)
                                 : silent ? reply_timeout_ns()
                                          : 0;
  const auto status = static_cast<int>(silent ? -ETIMEDOUT : fault.argument);
  const rdma_cm_event_type type =
      fault.failure() == faults::Failure::reject          ? RDMA_CM_EVENT_REJECTED
      : fault.failure() == faults::Failure::connect_error ? RDMA_CM_EVENT_CONNECT_ERROR
                                                          : RDMA_CM_EVENT_UNREACHABLE;
  auto call = device::DelayedCall::start(state_.registry->context()->engine(), pause_ns,
                                         [weak = state_.owner(), this, dialer, late, type, status] {
                                           const auto owner = weak.lock();
                                           if (owner)
                                             late ? dialer->start() : on_fault(type, status);
                                         });
  const std::lock_guard lock(state_.mutex);
  if (state_.stage == Stage::connecting) delayed_ = std::move(call);
}

// The dialer was made but not started, so it is dropped without being cancelled.
void ActiveSide::on_fault(rdma_cm_event_type type, int status) {
  std::unique_lock lock(state_.mutex);
  if (state_.stage != Stage::connecting) return;
  dialer_.reset();
  end(lock, type);
  state_.push(type, status);
}

// No event follows on this side. The peer gets its ESTABLISHED once the stream begins.
int ActiveSide::establish() {
  std::unique_lock lock(state_.mutex);
  if (state_.stage != Stage::responded || state_.handle.id.qp) return EINVAL;
  // The queue pair is destroyed, or this is iWARP, which needs one.
  if (!stream_.queue_pair() && !stream_.is_bare()) {
    state_.stage = Stage::ended;
    response_->close();
    return EINVAL;
  }
  const auto response = std::move(response_);
  return stream_.attach(lock, std::move(*response), {.initiator = true, .report = false});
}

void ActiveSide::shut() {
  std::shared_ptr<device::Dialer> dialer;
  {
    const std::lock_guard lock(state_.mutex);
    if (response_) response_->close();
    dialer = std::move(dialer_);
    delayed_.reset();
  }
  if (dialer) dialer->cancel();
}

void ActiveSide::abandon_after_fork() {
  if (response_) response_->close();
  if (dialer_) dialer_->abandon_after_fork();
}

}  // namespace weft::cm
