// What every id does, whatever it is for: events, migration, the end.
#include "cm/identifier.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "cm/depths.h"
#include "cm/ports.h"
#include "cm/ready_timer.h"
#include "device/addresses.h"

namespace weft::cm {

Identifier::Identifier(std::shared_ptr<Registry> registry, std::shared_ptr<Channel> channel,
                       bool synchronous, void* context, rdma_port_space ps, ibv_qp_type qp_type)
    : registry_(std::move(registry)), channel_(std::move(channel)), synchronous_(synchronous) {
  handle_.owner = this;
  handle_.id.channel = channel_ ? channel_->handle() : nullptr;
  handle_.id.context = context;
  handle_.id.ps = ps;
  handle_.id.qp_type = qp_type;
}

void Identifier::acknowledge() {
  {
    const std::lock_guard lock(acknowledge_mutex_);
    ++acknowledged_;
  }
  all_acknowledged_.notify_all();
}

void Identifier::wait_for_acknowledgements() {
  std::unique_lock lock(acknowledge_mutex_);
  all_acknowledged_.wait(lock, [this] { return acknowledged_ == delivered_.load(); });
}

std::shared_ptr<Channel> Identifier::channel() {
  const std::lock_guard lock(mutex_);
  return channel_;
}

bool Identifier::synchronous() {
  const std::lock_guard lock(mutex_);
  return synchronous_;
}

void Identifier::migrate(const std::shared_ptr<Channel>& channel, bool synchronous) {
  const std::lock_guard lock(mutex_);
  for (auto& event : channel_->withdraw(this)) channel->push(std::move(event));
  channel_ = channel;
  synchronous_ = synchronous;
  handle_.id.channel = channel->handle();
}

void Identifier::deliver(const std::shared_ptr<Channel>& channel, bool synchronous) {
  std::shared_ptr<device::Listener> origin;
  {
    const std::lock_guard lock(mutex_);
    channel_ = channel;
    synchronous_ = synchronous;
    handle_.id.channel = channel->handle();
    origin = std::move(origin_);
  }
  if (origin) origin->request_fetched();
}

std::unique_ptr<Event> Identifier::make_event(rdma_cm_event_type type, int status) {
  auto event = std::make_unique<Event>();
  event->event.id = &handle_.id;
  event->event.event = type;
  event->event.status = status;
  event->owner = shared_from_this();
  return event;
}

void Identifier::push(std::unique_ptr<Event> event) {
  if (stage_ != Stage::destroyed && channel_) channel_->push(std::move(event));
}

void Identifier::push_connected(rdma_cm_event_type type, Bytes private_data) {
  const bool acknowledge = registry_->settings().acknowledge;
  auto event = make_event(type);
  event->event.param.conn.responder_resources = to_event(negotiated_.ird, acknowledge);
  event->event.param.conn.initiator_depth = to_event(negotiated_.ord, acknowledge);
  event->set_private_data(private_data);
  push(std::move(event));
}

int Identifier::use_device() {
  device::Context* const context = registry_->context();
  ibv_pd* const domain = registry_->default_domain();
  if (!context || !domain) return ENODEV;
  rdma_cm_id& id = handle_.id;
  id.verbs = context->verbs();
  id.port_num = 1;
  if (!id.pd) id.pd = domain;
  id.route.addr.addr.ibaddr.pkey = htons(0xFFFF);
  return 0;
}

void Identifier::set_source(const sockaddr_storage& tcp_address) {
  rdma_addr& route = handle_.id.route.addr;
  route.src_storage = from_tcp(tcp_address, registry_->settings().port_offset);
  route.addr.ibaddr.sgid = device::gid_of(tcp_address);
}

void Identifier::set_destination(const sockaddr_storage& tcp_address) {
  rdma_addr& route = handle_.id.route.addr;
  route.dst_storage = from_tcp(tcp_address, registry_->settings().port_offset);
  route.addr.ibaddr.dgid = device::gid_of(tcp_address);
}

sockaddr_storage Identifier::tcp_source() {
  return to_tcp(handle_.id.route.addr.src_storage, registry_->settings().port_offset);
}

int Identifier::choose_queue_pair(std::uint32_t number, std::shared_ptr<device::QueuePair>& found) {
  if (handle_.id.qp) {
    found = device::QueuePair::of(handle_.id.qp)->shared_from_this();
  } else {
    found = registry_->context()->find_queue_pair(number);
  }
  if (!found) return EINVAL;
  found->set_timeout(ack_timeout_);
  return 0;
}

void Identifier::shut() {
  std::unique_lock lock(mutex_);
  const Stage stage = std::exchange(stage_, Stage::destroyed);
  reserved_.reset();
  waiting_.close();
  const auto listener = std::move(listener_);
  const auto dialer = std::move(dialer_);
  const auto greeting = std::move(greeting_);
  const auto queue_pair = queue_pair_.lock();
  const auto channel = channel_;
  const auto service_port = std::move(service_port_);
  ready_timer_.reset();
  lock.unlock();
  if (listener) listener->stop();
  if (dialer) dialer->cancel();
  if (service_port && stage == Stage::requested) {
    service_port->reply(service_request_, {.status = ServicePort::Status::rejected});
  } else if (service_port) {
    service_port->close();
  }
  // Who asked hears at least that nobody will answer.
  if (greeting && stage == Stage::requested) greeting->reject({});
  if (greeting && stage == Stage::accepting) greeting->cancel();
  if (queue_pair && (stage == Stage::connected || stage == Stage::accepting)) {
    queue_pair->disconnect();
  }
  if (!channel) return;
  for (const auto& event : channel->withdraw(this)) {
    if (event->request) event->request->shut();
  }
}

void Identifier::abandon_after_fork() {
  abandoned_ = true;
  stage_ = Stage::destroyed;
  reserved_.reset();
  waiting_.close();
  if (listener_) listener_->abandon_after_fork();
  if (dialer_) dialer_->abandon_after_fork();
  if (greeting_) greeting_->abandon_after_fork();
  if (service_port_) service_port_->abandon_after_fork();
}

}  // namespace weft::cm
