#include "cm/datagram_space.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cm/identifier.h"
#include "cm/qp_attributes.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::cm {
namespace {

// rdma_cma.h: the key that rdma_cm gives to every queue pair of this port space.
constexpr std::uint32_t queue_key = RDMA_UDP_QKEY;

// For rejections, which are sent in any case, with as much of the data as a packet holds.
Bytes limited(Bytes data) {
  return data.first(std::min(data.size(), wire::ServiceQuery::max_private_data_bytes));
}

// For connect() and accept(), which refuse data that a packet does not hold.
bool fits(Bytes data) {
  return data.size() <= wire::ServiceQuery::max_private_data_bytes;
}

}  // namespace

int DatagramSpace::bind(sockaddr_storage& tcp_address) {
  const ServicePort::Plan plan{.address = tcp_address,
                               .reuse_address = state_.options.reuse_address,
                               .ipv6_only = state_.options.ipv6_only};
  const int failed = ServicePort::open(state_.registry->context()->device(), plan, port_);
  if (failed == 0) tcp_address = port_->address();
  return failed;
}

// --- The passive side ----------------------------------------------------------------------------

int DatagramSpace::listen(std::size_t backlog) {
  state_.stage = Stage::listening;
  port_->listen(backlog, [weak = state_.owner(), this](const ServicePort::Request& request) {
    const auto owner = weak.lock();
    return owner && on_request(request);
  });
  return 0;
}

// Makes the id of a request. It answers by the port of the listener, which stays open until then.
bool DatagramSpace::on_request(const ServicePort::Request& request) {
  const std::lock_guard lock(state_.mutex);
  if (state_.stage != Stage::listening) return false;
  auto state = state_.make_request(request.route.destination, request.route.source);
  auto space = std::make_unique<DatagramSpace>(*state);
  space->port_ = port_;
  space->request_ = request;
  space->waits_ = true;
  const auto made = std::make_shared<Identifier>(std::move(state), std::move(space));
  auto event = state_.make_event(RDMA_CM_EVENT_CONNECT_REQUEST);
  event->set_private_data(request.private_data);
  state_.push_request(std::move(event), made);
  return true;
}

// A place in the backlog is free again, as with TCP and with the kernel's rdma_cm.
void DatagramSpace::request_fetched() {
  std::shared_ptr<ServicePort> port;
  {
    const std::lock_guard lock(state_.mutex);
    if (std::exchange(waits_, false)) port = port_;
  }
  if (port) port->end_wait();
}

// Accepting is final: without a connection there is nothing to wait for on this side.
int DatagramSpace::accept(ConnectParameters parameters) {
  ibv_qp* const own = state_.handle.id.qp;
  if (!fits(parameters.private_data)) return EINVAL;
  const ServicePort::Answer answer{.queue_pair = own ? own->qp_num : parameters.qp_num,
                                   .queue_key = queue_key,
                                   .private_data = std::move(parameters.private_data)};
  // The id has no queue pair, and the program has named none of its own.
  if (answer.queue_pair == 0) return EINVAL;
  std::shared_ptr<ServicePort> port;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::requested) return EINVAL;
    state_.stage = Stage::connected;
    port = std::move(port_);
  }
  port->reply(request_, answer);
  return 0;
}

int DatagramSpace::reject(Bytes private_data) {
  std::shared_ptr<ServicePort> port;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::requested) return EINVAL;
    state_.stage = Stage::ended;
    port = std::move(port_);
  }
  const Bytes data = limited(private_data);
  port->reply(request_, {.status = ServicePort::Status::rejected,
                         .private_data = {data.begin(), data.end()}});
  return 0;
}

// --- The active side -----------------------------------------------------------------------------

// An id that is not bound gets a port now, since the reply has to arrive somewhere.
int DatagramSpace::connect(ConnectParameters parameters) {
  if (!fits(parameters.private_data)) return EINVAL;
  std::shared_ptr<ServicePort> port;
  device::DatagramRoute route;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::routed) return EINVAL;
    if (!port_) {
      sockaddr_storage source = state_.tcp_source();
      if (const int failed = bind(source)) return failed;
      state_.set_source(source);
    }
    route = {.source = state_.tcp_source(), .destination = state_.tcp_destination()};
    port = port_;
    state_.stage = Stage::connecting;
  }
  port->ask(route, 0, parameters.private_data, state_.registry->options().connect_timeout_ns,
            [weak = state_.owner(), this](const std::optional<ServicePort::Answer>& answer) {
              if (const auto owner = weak.lock()) on_answer(answer);
            });
  return 0;
}

// Called when a reply arrives, or when the time for one is over.
// As with InfiniBand, everything but a queue pair is UNREACHABLE; the status has the reason.
void DatagramSpace::on_answer(const std::optional<ServicePort::Answer>& answer) {
  const std::lock_guard lock(state_.mutex);
  if (state_.stage != Stage::connecting) return;
  state_.stage = Stage::ended;
  if (!answer) return state_.push(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  const bool valid = answer->status == ServicePort::Status::valid;
  auto event = state_.make_event(valid ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
                                 static_cast<int>(answer->status));
  event->set_private_data(answer->private_data);
  if (valid) {
    state_.stage = Stage::connected;
    rdma_ud_param& peer = event->event.param.ud;
    set_address_vector(state_, peer.ah_attr, state_.addresses().addr.ibaddr.dgid);
    peer.qp_num = answer->queue_pair;
    peer.qkey = answer->queue_key;
  }
  state_.push(std::move(event));
}

// Only the queue pair is stopped. There is no connection, so the peer is not notified.
int DatagramSpace::disconnect() {
  std::shared_ptr<device::QueuePair> queue_pair;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.stage != Stage::connected) return EINVAL;
    state_.stage = Stage::ended;
    ibv_qp* const own = state_.handle.id.qp;
    if (own) queue_pair = device::QueuePair::of(own)->shared_from_this();
  }
  if (queue_pair) queue_pair->disconnect();
  return 0;
}

void DatagramSpace::shut(Stage last) {
  std::shared_ptr<ServicePort> port;
  bool waits = false;
  {
    const std::lock_guard lock(state_.mutex);
    port = std::move(port_);
    waits = std::exchange(waits_, false);
  }
  if (!port) return;
  if (last == Stage::requested) {
    if (waits) port->end_wait();
    // The port is the listener's. The pending request is rejected, so that the peer does not wait
    // for its timeout.
    port->reply(request_, {.status = ServicePort::Status::rejected});
  } else {
    port->close();
  }
}

void DatagramSpace::abandon_after_fork() {
  if (port_) port_->abandon_after_fork();
}

}  // namespace weft::cm
