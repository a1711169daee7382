// The passive side: connection requests, rdma_accept(3), rdma_reject(3).
#include <cerrno>

#include "cm/depths.h"
#include "cm/identifier.h"
#include "cm/ports.h"
#include "cm/ready_timer.h"
#include "device/addresses.h"

namespace weft::cm {

// Makes the id of a request. The program sees it when it fetches the event.
void Identifier::on_request(const std::shared_ptr<device::Greeting>& greeting) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::listening) {
    lock.unlock();
    greeting->reject({});
    return;
  }
  const auto made = std::make_shared<Identifier>(registry_, nullptr, false, handle_.id.context,
                                                 handle_.id.ps, handle_.id.qp_type);
  sockaddr_storage local{};
  sockaddr_storage peer{};
  device::sys::local_address(greeting->fd(), &local);
  device::sys::peer_address(greeting->fd(), &peer);
  made->set_source(without_mapping(local));
  made->set_destination(without_mapping(peer));
  made->use_device();
  made->set_path();
  made->stage_ = Stage::requested;
  made->greeting_ = greeting;
  made->origin_ = listener_;

  const bool acknowledge = registry_->settings().acknowledge;
  const iwarp::PassiveHandshake& handshake = greeting->handshake();
  auto event = make_event(RDMA_CM_EVENT_CONNECT_REQUEST);
  event->event.id = made->handle();
  event->event.listen_id = &handle_.id;
  // What the peer offers is what we may use, and the other way round: rdma_get_cm_event(3).
  event->event.param.conn.initiator_depth = to_event(handshake.requested_ird(), acknowledge);
  event->event.param.conn.responder_resources = to_event(handshake.requested_ord(), acknowledge);
  event->set_private_data(handshake.peer_private_data());
  event->request = made;
  push(std::move(event));
}

ConnectWishes Identifier::requested_wishes() {
  const std::lock_guard lock(mutex_);
  ConnectWishes wishes;
  if (!greeting_) return wishes;
  const bool acknowledge = registry_->settings().acknowledge;
  const iwarp::PassiveHandshake& handshake = greeting_->handshake();
  wishes.responder_resources = to_event(handshake.requested_ord(), acknowledge);
  wishes.initiator_depth = to_event(handshake.requested_ird(), acknowledge);
  // One read that a peer grants may be meant for the program, where the peer is not Weft.
  if (wishes.initiator_depth == 0 && handshake.requested_ird() > 0) wishes.initiator_depth = 1;
  return wishes;
}

int Identifier::accept(ConnectWishes wishes) {
  if (is_datagram()) return accept_datagrams(wishes);
  std::shared_ptr<device::Greeting> greeting;
  bool acknowledge = false;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::requested) return EINVAL;
    std::shared_ptr<device::QueuePair> queue_pair;
    if (const int failed = choose_queue_pair(wishes.qp_num, queue_pair)) return failed;
    const ibv_qp_state state = queue_pair->verbs()->state;
    if (state == IBV_QPS_ERR || state == IBV_QPS_RESET) return EINVAL;
    queue_pair_ = queue_pair;
    asked_ord_ = wishes.initiator_depth;
    rnr_retries_ = wishes.rnr_retries;
    acknowledge = registry_->settings().acknowledge;
    greeting = greeting_;
    ready_timer_ = std::make_shared<ReadyTimer>(weak_from_this());
    stage_ = Stage::accepting;
  }
  const int failed =
      greeting->accept(to_wire(wishes.responder_resources, acknowledge),
                       to_wire(wishes.initiator_depth, acknowledge), wishes.private_data,
                       [weak = weak_from_this()](device::StreamSocket stream) {
                         if (const auto self = weak.lock()) self->on_replied(std::move(stream));
                       });
  if (failed == 0) return 0;
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::accepting) stage_ = Stage::ended;
  greeting_.reset();
  return failed;
}

// TCP has the reply: the stream begins. Peer to peer, the connection counts when the peer's first
// FPDU is there (RFC 6581 §9); otherwise at once, as the peer's first FPDU may be long in coming.
void Identifier::on_replied(device::StreamSocket stream) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::accepting || !greeting_) return;
  negotiated_ = greeting_->handshake().negotiated();
  greeting_.reset();
  if (!stream.valid()) {
    stage_ = Stage::ended;
    return push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  }
  const int failed = attach(lock, std::move(stream), false);
  after_attach(failed, true, {});
  if (stage_ != Stage::accepting) return;
  const auto deadline_ns = device::sys::now_ns() + registry_->options().first_fpdu_timeout_ns;
  registry_->context()->engine().call_at(deadline_ns, ready_timer_);
}

void Identifier::on_ready_timeout() {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::accepting) return;
  stage_ = Stage::ended;
  const auto queue_pair = queue_pair_.lock();
  lock.unlock();
  if (queue_pair) queue_pair->disconnect();
  lock.lock();
  push(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

int Identifier::reject(Bytes private_data) {
  if (is_datagram()) return reject_datagrams(private_data);
  std::shared_ptr<device::Greeting> greeting;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::requested) return EINVAL;
    stage_ = Stage::ended;
    greeting = std::move(greeting_);
  }
  return greeting->reject(private_data);
}

}  // namespace weft::cm
