#include "cm/passive_side.h"

#include <cerrno>

#include "cm/depths.h"
#include "cm/identifier.h"
#include "device/engine.h"

namespace weft::cm {

// Closes an accepted connection if the peer does not send its first FPDU in time. The engine may
// keep it longer than the id lives.
class PassiveSide::FirstFpduTimer final : public device::Pollable {
 public:
  FirstFpduTimer(std::weak_ptr<Identifier> owner, PassiveSide& side)
      : owner_(std::move(owner)), side_(side) {}
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override {
    if (const auto owner = owner_.lock()) side_.on_first_fpdu_timeout();
  }

 private:
  std::weak_ptr<Identifier> owner_;
  PassiveSide& side_;  // only while the owner lives
};

// Without the lock: the id of the request is new, and is not known to any other thread yet.
void PassiveSide::take_request(const std::shared_ptr<device::InboundHandshake>& inbound,
                               const std::shared_ptr<device::Listener>& listener) {
  inbound_ = inbound;
  listener_ = listener;
}

void PassiveSide::request_fetched() {
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    listener = std::move(listener_);
  }
  if (listener) listener->request_fetched();
}

// Accepts what the peer offers: its ORD is our limit as a responder, and the other way round.
ConnectParameters PassiveSide::requested_parameters() {
  const std::lock_guard lock(state_.mutex);
  ConnectParameters parameters;
  if (!inbound_) return parameters;
  const iwarp::PassiveHandshake& handshake = inbound_->handshake();
  parameters.responder_resources = to_event(handshake.requested_ord());
  parameters.initiator_depth = to_event(handshake.requested_ird());
  // A peer that is not Weft may mean the only read that it allows for the program.
  if (parameters.initiator_depth == 0 && handshake.requested_ird() > 0) {
    parameters.initiator_depth = 1;
  }
  return parameters;
}

// A queue pair in RESET takes no receives, and one in ERR flushes them, so the reply would invite
// data that cannot be received. Its type must be that of the request.
int PassiveSide::find_queue_pair(std::uint32_t number, std::shared_ptr<device::QueuePair>& found) {
  const int failed = stream_.find_queue_pair(number, found);
  if (failed != 0 || !found) return failed;
  const ibv_qp_state state = found->verbs()->state;
  const bool extended = found->verbs()->qp_type == IBV_QPT_XRC_RECV;
  if (inbound_ && inbound_->handshake().extended() != extended) return EINVAL;
  return state == IBV_QPS_ERR || state == IBV_QPS_RESET ? EINVAL : 0;
}

// The reply is sent without the lock, since the inbound may call on_replied() at once. The timer
// exists from here on, so that on_replied() can start it.
int PassiveSide::accept(const ConnectParameters& parameters) {
  std::shared_ptr<device::InboundHandshake> inbound;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::requested) return EINVAL;
    std::shared_ptr<device::QueuePair> queue_pair;
    if (const int failed = find_queue_pair(parameters.qp_num, queue_pair)) return failed;
    stream_.use(queue_pair);
    stream_.request(parameters);
    inbound = inbound_;
    timer_ = std::make_shared<FirstFpduTimer>(state_.owner(), *this);
    state_.stage = Stage::accepting;
  }
  const int failed = inbound->accept(to_wire(parameters.responder_resources),
                                     to_wire(parameters.initiator_depth), parameters.private_data,
                                     [weak = state_.owner(), this](device::StreamSocket stream) {
                                       if (const auto owner = weak.lock())
                                         on_replied(std::move(stream));
                                     });
  if (failed == 0) return 0;
  const std::lock_guard lock(state_.mutex);
  // The stage may have changed without the lock, for example because the id is being destroyed.
  if (state_.stage == Stage::accepting) state_.stage = Stage::ended;
  inbound_.reset();
  return failed;
}

// TCP has taken the reply: the stream begins. From here the peer's first FPDU is awaited, unless
// the connection is established without it (see StreamAttachment::attach()).
void PassiveSide::on_replied(device::StreamSocket stream) {
  std::unique_lock lock(state_.mutex);
  if (state_.stage != Stage::accepting || !inbound_) return;
  stream_.set_negotiated(inbound_->handshake().negotiated());
  inbound_.reset();
  if (!stream.valid()) {
    state_.stage = Stage::ended;
    return state_.push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  }
  stream_.attach(lock, std::move(stream), {.initiator = false});
  if (state_.stage != Stage::accepting) return;
  const auto deadline_ns = device::sys::now_ns() + state_.registry->options().first_fpdu_timeout_ns;
  state_.registry->context()->engine().call_at(deadline_ns, timer_);
}

// The stage is `ended` before the stream is closed, so that its end causes no further event.
void PassiveSide::on_first_fpdu_timeout() {
  std::unique_lock lock(state_.mutex);
  if (state_.stage != Stage::accepting) return;
  state_.stage = Stage::ended;
  ++state_.registry->context()->device().refusals().no_first_fpdu;
  const auto disconnect = stream_.disconnection();
  lock.unlock();
  disconnect();
  lock.lock();
  state_.push(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

int PassiveSide::reject(Bytes private_data) {
  std::shared_ptr<device::InboundHandshake> inbound;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::requested) return EINVAL;
    state_.stage = Stage::ended;
    inbound = std::move(inbound_);
  }
  return inbound->reject(private_data);
}

void PassiveSide::shut(Stage last) {
  std::shared_ptr<device::InboundHandshake> inbound;
  {
    const std::lock_guard lock(state_.mutex);
    inbound = std::move(inbound_);
    timer_.reset();
  }
  // Reject the pending request, so that the peer does not wait for its timeout.
  if (inbound && last == Stage::requested) inbound->reject({});
  // The reply is on its way already, so a rejection cannot follow it.
  if (inbound && last == Stage::accepting) inbound->cancel();
}

void PassiveSide::abandon_after_fork() {
  if (inbound_) inbound_->abandon_after_fork();
}

}  // namespace weft::cm
