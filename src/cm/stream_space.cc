#include "cm/stream_space.h"

#include <cerrno>

#include "base/log.h"
#include "cm/depths.h"
#include "cm/identifier.h"

namespace weft::cm {

int StreamSpace::bind(sockaddr_storage& tcp_address) {
  SharedPorts& ports = state_.registry->shared_ports();
  const bool ipv6_only = state_.options.ipv6_only;
  int failed = reserve(tcp_address, state_.options, reserved_);
  const bool shared = failed == EADDRINUSE && ports.share(tcp_address, ipv6_only);
  if (shared) failed = 0;
  if (failed == EADDRINUSE) state_.registry->report_address_in_use(tcp_address);
  if (failed == 0) ports.add({tcp_address, ipv6_only, state_.owner(), this, shared});
  return failed;
}

// TCP's own queue is as long as the system allows: where it is full, a client loses a second.
int StreamSpace::listen(std::size_t backlog) {
  if (reserved_.valid()) {
    sockaddr_storage tcp{};
    device::sys::local_address(reserved_.get(), &tcp);
    if (const int failed = start_listening(reserved_.get(), SOMAXCONN)) {
      if (failed == EADDRINUSE) state_.registry->report_address_in_use(tcp);
      return failed;
    }
  }
  state_.stage = Stage::listening;
  listener_ = make_listener(backlog);
  return listener_->start();
}

void StreamSpace::leave_port() {
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    reserved_.reset();
    listener = listener_;
  }
  if (listener) listener->close_socket();
}

// The program may have asked for a short queue, where TCP makes those who find no place wait for a
// second.
void StreamSpace::take_port(device::sys::Descriptor listening) {
  (void)start_listening(listening.get(), SOMAXCONN);
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage == Stage::idle) reserved_ = std::move(listening);
    if (state_.stage == Stage::listening) listener = listener_;
  }
  if (listener) listener->open_socket(std::move(listening));
}

void StreamSpace::apply_reuse_address() {
  if (!reserved_.valid()) return;
  const int value = state_.options.reuse_address ? 1 : 0;
  device::sys::set_option(reserved_.get(), SOL_SOCKET, SO_REUSEADDR, value);
}

// A listener without an address: all its connections come this way.
int StreamSpace::adopt(device::sys::Descriptor connection) {
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::idle && state_.stage != Stage::listening) return EINVAL;
    if (state_.stage == Stage::idle) {
      listener_ = make_listener(SIZE_MAX);
      state_.stage = Stage::listening;
    }
    listener = listener_;
  }
  return listener->adopt(std::move(connection));
}

int StreamSpace::serve_host(bool serves) {
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    listener = listener_;
  }
  return listener ? listener->serve_host(serves) : EINVAL;
}

std::shared_ptr<device::Listener> StreamSpace::make_listener(std::size_t backlog) {
  device::Listener::Plan plan;
  plan.socket = std::move(reserved_);
  plan.tos = state_.options.tos;
  plan.max_requests = backlog;
  plan.handshake_timeout_ns = state_.registry->options().handshake_timeout_ns;
  plan.requested = [weak = state_.owner(), this](const auto& inbound) {
    if (const auto owner = weak.lock()) on_request(inbound);
  };
  // This function holds the registry itself: it counts also where the id is destroyed already.
  plan.dropped = [registry = state_.registry] { ++registry->counters().requests_dropped; };
  return std::make_shared<device::Listener>(state_.registry->context()->device(), std::move(plan));
}

// An id listens either for extended connections or for others: rdma_create_ep(3). The kernel's
// connection manager rejects requests for the other type as well.
void StreamSpace::on_request(const std::shared_ptr<device::InboundHandshake>& inbound) {
  const bool extended = inbound->handshake().extended();
  if (extended != (state_.handle.id.qp_type == IBV_QPT_XRC_RECV)) {
    log_format(
        LogLevel::warning, "rdma_cm",
        "a connection request from %s is rejected: it is %sfor an extended connection (XRC), "
        "and the id that listens is%s",
        device::to_string(inbound->ends().remote).c_str(), extended ? "" : "not ",
        extended ? " not" : "");
    return leave_backlog(inbound);
  }
  const auto fault = state_.fault_at(faults::Point::connect_request, inbound->ends().remote);
  fault ? take_with_fault(*fault, inbound) : report(inbound);
}

// The program does not see this request.
void StreamSpace::leave_backlog(const std::shared_ptr<device::InboundHandshake>& inbound) {
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    listener = listener_;
  }
  (void)inbound->reject({});
  if (listener) listener->request_fetched();
}

// A request that the program will not see leaves its place in the backlog.
void StreamSpace::take_with_fault(const faults::Action& fault,
                                  const std::shared_ptr<device::InboundHandshake>& inbound) {
  std::shared_ptr<device::Listener> listener;
  {
    const std::lock_guard lock(state_.mutex);
    listener = listener_;
  }
  const bool comes = failing_.take(state_.registry->context()->engine(), fault, inbound,
                                   [weak = state_.owner(), this, inbound] {
                                     if (const auto owner = weak.lock()) report(inbound);
                                   });
  if (!comes && listener) listener->request_fetched();
}

// Makes the id of a request. The program sees it when it fetches the event.
void StreamSpace::report(const std::shared_ptr<device::InboundHandshake>& inbound) {
  std::unique_lock lock(state_.mutex);
  if (state_.stage != Stage::listening) {
    lock.unlock();
    inbound->reject({});
    return;
  }
  auto state = state_.make_request(inbound->ends().local, inbound->ends().remote);
  auto space = std::make_unique<StreamSpace>(*state);
  // The listener learns by it when the program has fetched the event, which frees a place in the
  // backlog.
  space->passive_.take_request(inbound, listener_);
  const auto made = std::make_shared<Identifier>(std::move(state), std::move(space));

  const iwarp::PassiveHandshake& handshake = inbound->handshake();
  auto event = state_.make_event(RDMA_CM_EVENT_CONNECT_REQUEST);
  // rdma_get_cm_event(3): what the peer offers as responder is what this side may use as initiator,
  // and the other way round.
  event->event.param.conn.initiator_depth = to_event(handshake.requested_ird());
  event->event.param.conn.responder_resources = to_event(handshake.requested_ord());
  state_.set_retries(event->event.param.conn);
  event->set_private_data(handshake.peer_private_data(),
                          state_.least_private_data(InfinibandPrivateData::request));
  state_.push_request(std::move(event), made);
}

// rdma_disconnect(3) asks both sides to call it, so it is no error that the connection has ended
// already. The side that calls it gets its DISCONNECTED even where the peer has sent nothing yet.
int StreamSpace::disconnect() {
  std::function<void()> disconnect;
  {
    std::unique_lock lock(state_.mutex);
    if (!state_.handle.id.verbs) return EINVAL;
    if (state_.stage == Stage::ended) return answer_disconnection(lock);
    if (state_.stage == Stage::responded) {
      active_.drop_response();
      state_.stage = Stage::ended;
      state_.push_disconnected();
      return 0;
    }
    if (state_.stage != Stage::connected && state_.stage != Stage::accepting) return EINVAL;
    // The queue pair has no stream before the reply is sent.
    if (passive_.replying()) return EINVAL;
    // From `accepting`, too: the end of the stream is then reported as DISCONNECTED.
    state_.stage = Stage::connected;
    stream_.note_disconnection();
    disconnect = stream_.disconnection();
  }
  disconnect();
  return 0;
}

// As InfiniBand adapters have it, the queue pair of the side that did not disconnect first fails
// only now, and flushes its requests. Otherwise it has done so by itself.
int StreamSpace::answer_disconnection(std::unique_lock<std::mutex>& lock) {
  stream_.note_disconnection();
  const auto queue_pair = stream_.queue_pair();
  const bool strict = state_.registry->context()->device().is_strict_roce();
  lock.unlock();
  if (queue_pair && strict) queue_pair->disconnect();
  return 0;
}

void StreamSpace::shut(Stage last) {
  std::shared_ptr<device::Listener> listener;
  std::function<void()> disconnect;
  state_.registry->shared_ports().remove(this);
  {
    const std::lock_guard lock(state_.mutex);
    reserved_.reset();
    listener = std::move(listener_);
    disconnect = stream_.disconnection();
  }
  // New requests are stopped first, so that none comes in while those that wait are ended.
  if (listener) listener->stop();
  failing_.close();
  active_.shut();
  passive_.shut(last);
  const bool has_stream = last == Stage::connected || last == Stage::accepting;
  if (has_stream) disconnect();
}

void StreamSpace::abandon_after_fork() {
  reserved_.reset();
  if (listener_) listener_->abandon_after_fork();
  failing_.abandon_after_fork();
  active_.abandon_after_fork();
  passive_.abandon_after_fork();
  stream_.abandon_after_fork();
}

}  // namespace weft::cm
