#include "fabric/passive_endpoint.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fabric/answer.h"
#include "fabric/endpoint.h"
#include "fabric/options.h"

namespace weft::fabric {
namespace {

// In memory that fi_freeinfo gives back.
void replace(void*& address, std::size_t& bytes, const std::string& text) {
  std::free(address);
  address = nullptr;
  bytes = 0;
  const auto read = from_text(text);
  if (!read) return;
  address = std::malloc(read->bytes);
  if (!address) throw std::bad_alloc();
  std::memcpy(address, &read->storage, read->bytes);
  bytes = read->bytes;
}

}  // namespace

PassiveEndpoint::~PassiveEndpoint() {
  listener_.reset();  // no more events
  if (queue_) queue_->remove(cookie_);
  fabric_.requests().drop_of(this);
}

int PassiveEndpoint::bind(EventQueue& queue) {
  const std::lock_guard lock(mutex_);
  if (listening_) return -FI_EOPBADSTATE;
  if (queue_) return -FI_EINVAL;
  queue_use_.emplace(queue.users());
  cookie_ = queue.add(*this);
  queue_ = &queue;
  return 0;
}

int PassiveEndpoint::set_address(const SocketAddress& address) {
  const std::lock_guard lock(mutex_);
  if (listening_) return -FI_EOPBADSTATE;
  listener_.reset();
  listener_.emplace(to_text(address), options_);
  return 0;
}

std::optional<SocketAddress> PassiveEndpoint::address() {
  const std::lock_guard lock(mutex_);
  return listener_ ? from_text(listener_->local_address()) : std::nullopt;
}

int PassiveEndpoint::set_backlog(int backlog) {
  const std::lock_guard lock(mutex_);
  if (listening_) return -FI_EOPBADSTATE;
  if (backlog < 0) return -FI_EINVAL;
  backlog_ = backlog;
  return 0;
}

int PassiveEndpoint::listen() {
  const std::lock_guard lock(mutex_);
  if (!queue_) return -FI_ENOEQ;
  if (listening_) return -FI_EOPBADSTATE;
  if (!listener_) listener_.emplace(stream::Address{}, options_);
  listener_->listen(backlog_);
  listening_ = true;
  listener_->attach(&queue_->events(), cookie_);
  return 0;
}

int PassiveEndpoint::reject(fid_t request, std::span<const std::byte> data) {
  auto taken = fabric_.requests().take(request);
  if (!taken) return -FI_EINVAL;
  std::move(*taken).reject(data);
  return 0;
}

std::optional<Notice> PassiveEndpoint::notice_of(stream::Event event) {
  if (event.type != stream::EventType::connect_request || !event.request) return std::nullopt;
  Notice notice;
  notice.event = FI_CONNREQ;
  notice.handle = &this->fid;
  notice.info = copy_of(*info_);
  replace(notice.info->src_addr, notice.info->src_addrlen, event.request->local_address());
  replace(notice.info->dest_addr, notice.info->dest_addrlen, event.request->peer_address());
  const auto data = event.request->private_data();
  notice.data.assign(data.begin(), data.end());
  notice.info->handle = fabric_.requests().add(this, std::move(*event.request));
  return notice;
}

// --- What programs call --------------------------------------------------------------------------

namespace {

int close_endpoint(fid* handle) {
  delete &object_of<PassiveEndpoint>(handle);
  return 0;
}

int bind(fid* handle, fid* other, std::uint64_t flags) {
  if (!other || other->fclass != FI_CLASS_EQ || flags != 0) return -FI_EINVAL;
  return object_of<PassiveEndpoint>(handle).bind(object_of<EventQueue>(other));
}

int control(fid* handle, int command, void* argument) {
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  if (!argument) return -FI_EINVAL;
  return object_of<PassiveEndpoint>(handle).set_backlog(*static_cast<const int*>(argument));
}

int set_name(fid_t handle, void* address, std::size_t bytes) {
  const auto read = read_address(address, bytes);
  return read ? object_of<PassiveEndpoint>(handle).set_address(*read) : -FI_EINVAL;
}

int get_name(fid_t handle, void* address, std::size_t* bytes) {
  const auto name = object_of<PassiveEndpoint>(handle).address();
  return name ? give_address(*name, address, bytes) : -FI_EADDRNOTAVAIL;
}

int listen(fid_pep* endpoint) {
  return static_cast<PassiveEndpoint&>(*endpoint).listen();
}

int reject(fid_pep* endpoint, fid_t request, const void* data, std::size_t bytes) {
  return static_cast<PassiveEndpoint&>(*endpoint).reject(request, connection_data(data, bytes));
}

int get_option(fid_t /*handle*/, int level, int name, void* value, std::size_t* bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return give_connection_data_size(value, bytes);
}

// Endpoints have options, each its own.
int set_option(fid_t /*handle*/, int /*level*/, int /*name*/, const void* /*value*/,
               std::size_t /*bytes*/) {
  return -FI_ENOPROTOOPT;
}

fi_ops passive_fid_ops = {
    .size = sizeof(fi_ops),
    .close = guarded<close_endpoint>,
    .bind = guarded<bind>,
    .control = guarded<control>,
    .ops_open = lacking<decltype(fi_ops::ops_open)>,
    .tostr = lacking<decltype(fi_ops::tostr)>,
    .ops_set = lacking<decltype(fi_ops::ops_set)>,
};

fi_ops_ep passive_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = lacking<decltype(fi_ops_ep::cancel)>,
    .getopt = guarded<get_option>,
    .setopt = set_option,
    .tx_ctx = lacking<decltype(fi_ops_ep::tx_ctx)>,
    .rx_ctx = lacking<decltype(fi_ops_ep::rx_ctx)>,
    .rx_size_left = lacking<decltype(fi_ops_ep::rx_size_left)>,
    .tx_size_left = lacking<decltype(fi_ops_ep::tx_size_left)>,
};

fi_ops_cm passive_cm_ops = {
    .size = sizeof(fi_ops_cm),
    .setname = guarded<set_name>,
    .getname = guarded<get_name>,
    .getpeer = lacking<decltype(fi_ops_cm::getpeer)>,
    .connect = lacking<decltype(fi_ops_cm::connect)>,
    .listen = guarded<listen>,
    .accept = lacking<decltype(fi_ops_cm::accept)>,
    .reject = guarded<reject>,
    .shutdown = lacking<decltype(fi_ops_cm::shutdown)>,
    .join = lacking<decltype(fi_ops_cm::join)>,
};

}  // namespace

PassiveEndpoint::PassiveEndpoint(Fabric& fabric, const fi_info& info, void* context)
    : fid_pep{{FI_CLASS_PEP, context, &passive_fid_ops}, &passive_ops, &passive_cm_ops},
      fabric_(fabric),
      use_(fabric.users()),
      info_(copy_of(info)),
      options_(options_of(info)) {
  const auto source = read_address(info.src_addr, info.src_addrlen);
  if (source) listener_.emplace(to_text(*source), options_);
}

int open_passive_endpoint(fid_fabric* fabric, fi_info* info, fid_pep** endpoint, void* context) {
  if (!info || !endpoint) return -FI_EINVAL;
  *endpoint = new PassiveEndpoint(static_cast<Fabric&>(*fabric), *info, context);
  return 0;
}

}  // namespace weft::fabric
