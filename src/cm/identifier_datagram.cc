// Ids of the UDP port space: they have no connection, and learn of each other's queue pairs by one
// question and its answer. Groups: rdma_join_multicast(3).
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/identifier.h"
#include "cm/ports.h"
#include "device/addresses.h"
#include "device/datagram/datagrams.h"
#include "device/limits.h"

namespace weft::cm {
namespace {

// What rdma_cm gives to every queue pair of this port space: rdma_cma.h, RDMA_UDP_QKEY.
constexpr std::uint32_t queue_key = RDMA_UDP_QKEY;
constexpr std::uint8_t group_hop_limit = 1;

Bytes limited(Bytes data) {
  return data.first(std::min(data.size(), wire::ServiceQuery::max_private_data_bytes));
}

}  // namespace

int Identifier::open_service_port(const sockaddr_storage& address) {
  const ServicePort::Plan plan{
      .address = address, .reuse_address = options_.reuse_address, .ipv6_only = options_.ipv6_only};
  return ServicePort::open(registry_->context()->device(), plan, service_port_);
}

int Identifier::listen_for_datagrams(int backlog) {
  stage_ = Stage::listening;
  service_port_->listen(static_cast<std::size_t>(backlog),
                        [weak = weak_from_this()](const ServicePort::Request& request) {
                          if (const auto self = weak.lock()) self->on_service_request(request);
                        });
  return 0;
}

// --- The passive side ----------------------------------------------------------------------------

void Identifier::on_service_request(const ServicePort::Request& request) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::listening) return;
  const auto made = std::make_shared<Identifier>(registry_, nullptr, false, handle_.id.context,
                                                 handle_.id.ps, handle_.id.qp_type);
  made->set_source(without_mapping(request.route.destination));
  made->set_destination(without_mapping(request.route.source));
  made->use_device();
  made->set_path();
  made->stage_ = Stage::requested;
  made->service_port_ = service_port_;
  made->service_request_ = request;
  auto event = make_event(RDMA_CM_EVENT_CONNECT_REQUEST);
  event->event.id = made->handle();
  event->event.listen_id = &handle_.id;
  event->set_private_data(request.private_data);
  event->request = made;
  push(std::move(event));
}

int Identifier::accept_datagrams(const ConnectWishes& wishes) {
  std::shared_ptr<ServicePort> port;
  const ServicePort::Answer answer{
      .queue_pair = handle_.id.qp ? handle_.id.qp->qp_num : wishes.qp_num,
      .queue_key = queue_key,
      .private_data = wishes.private_data};
  if (limited(wishes.private_data).size() != wishes.private_data.size()) return EINVAL;
  if (answer.queue_pair == 0) return EINVAL;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::requested) return EINVAL;
    stage_ = Stage::connected;
    port = std::move(service_port_);
  }
  port->reply(service_request_, answer);
  return 0;
}

int Identifier::reject_datagrams(Bytes private_data) {
  std::shared_ptr<ServicePort> port;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::requested) return EINVAL;
    stage_ = Stage::ended;
    port = std::move(service_port_);
  }
  const Bytes data = limited(private_data);
  port->reply(service_request_, {.status = ServicePort::Status::rejected,
                                 .private_data = {data.begin(), data.end()}});
  return 0;
}

// --- The active side -----------------------------------------------------------------------------

int Identifier::connect_datagrams(const ConnectWishes& wishes) {
  if (limited(wishes.private_data).size() != wishes.private_data.size()) return EINVAL;
  std::shared_ptr<ServicePort> port;
  device::DatagramRoute route;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::routed) return EINVAL;
    if (!service_port_) {
      if (const int failed = open_service_port(tcp_source())) return failed;
      set_source(service_port_->address());
    }
    const std::uint16_t offset = registry_->settings().port_offset;
    route = {.source = tcp_source(),
             .destination = to_tcp(handle_.id.route.addr.dst_storage, offset)};
    port = service_port_;
    stage_ = Stage::connecting;
  }
  port->ask(route, 0, wishes.private_data, registry_->options().connect_timeout_ns,
            [weak = weak_from_this()](const std::optional<ServicePort::Answer>& answer) {
              if (const auto self = weak.lock()) self->on_service_answer(answer);
            });
  return 0;
}

// Everything that is no queue pair is UNREACHABLE, as with InfiniBand: the status tells them apart.
void Identifier::on_service_answer(const std::optional<ServicePort::Answer>& answer) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::connecting) return;
  stage_ = Stage::ended;
  if (!answer) return push(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  const bool valid = answer->status == ServicePort::Status::valid;
  auto event = make_event(valid ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
                          static_cast<int>(answer->status));
  event->set_private_data(answer->private_data);
  if (valid) {
    stage_ = Stage::connected;
    rdma_ud_param& peer = event->event.param.ud;
    set_address_vector(peer.ah_attr, handle_.id.route.addr.addr.ibaddr.dgid);
    peer.qp_num = answer->queue_pair;
    peer.qkey = answer->queue_key;
  }
  push(std::move(event));
}

// There is nothing to take down but the queue pair, and nobody to tell.
int Identifier::end_datagrams() {
  std::shared_ptr<device::QueuePair> queue_pair;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::connected) return EINVAL;
    stage_ = Stage::ended;
    if (handle_.id.qp) queue_pair = device::QueuePair::of(handle_.id.qp)->shared_from_this();
  }
  if (queue_pair) queue_pair->disconnect();
  return 0;
}

// --- Groups --------------------------------------------------------------------------------------

int Identifier::join_group(const sockaddr_storage& address, bool send_only, void* context) {
  const std::lock_guard lock(mutex_);
  const bool has_device = handle_.id.verbs != nullptr && stage_ != Stage::destroyed;
  const ibv_gid gid = device::gid_of(address);
  if (!is_datagram() || !has_device || !device::is_multicast(gid)) return EINVAL;
  int failed = 0;
  const bool attach = handle_.id.qp != nullptr && !send_only;
  if (attach) {
    auto& datagrams = registry_->context()->device().datagrams();
    failed = datagrams.attach(device::QueuePair::of(handle_.id.qp)->shared_from_this(), gid);
  }
  if (failed != 0) {
    auto event = make_event(RDMA_CM_EVENT_MULTICAST_ERROR, -failed);
    event->event.param.ud.private_data = context;
    push(std::move(event));
    return 0;
  }
  groups_.push_back({address, gid, attach});
  auto event = make_event(RDMA_CM_EVENT_MULTICAST_JOIN);
  rdma_ud_param& group = event->event.param.ud;
  group.private_data = context;  // rdma_join_multicast(3)
  set_address_vector(group.ah_attr, gid);
  group.ah_attr.grh.hop_limit = group_hop_limit;
  group.qp_num = device::multicast_queue_pair;
  group.qkey = queue_key;
  push(std::move(event));
  return 0;
}

int Identifier::leave_group(const sockaddr_storage& address) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return device::same_host_address(group.address, address);
  });
  if (found == groups_.end()) return EADDRNOTAVAIL;
  const Group group = *found;
  groups_.erase(found);
  if (!group.attached || !handle_.id.qp) return 0;
  auto& datagrams = registry_->context()->device().datagrams();
  return datagrams.detach(*device::QueuePair::of(handle_.id.qp), group.gid);
}

}  // namespace weft::cm
