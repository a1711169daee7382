#include "fabric/passive_endpoint.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fabric/calls.h"
#include "fabric/endpoint.h"
#include "fabric/options.h"

namespace weft::fabric {
namespace {

// Replaces an address in an fi_info. Uses malloc(3), because fi_freeinfo frees it.
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

// fi_close rejects the requests that the program has neither accepted nor rejected.
PassiveEndpoint::~PassiveEndpoint() {
  listener_.reset();  // afterwards no more events come
  if (queue_) queue_->remove(cookie_);
  fabric_.requests().drop_of(this);
}

// The queue counts this endpoint as a user, so that it cannot be closed before.
int PassiveEndpoint::bind(EventQueue& queue) {
  const std::lock_guard lock(mutex_);
  if (listening_) return -FI_EOPBADSTATE;
  if (queue_) return -FI_EINVAL;
  queue_use_.emplace(queue.users());
  cookie_ = queue.add(*this);
  queue_ = &queue;
  return 0;
}

// Binds at once, so that address() returns the port that was chosen.
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

// attach() comes last: events may be reported at once.
int PassiveEndpoint::listen() {
  const std::lock_guard lock(mutex_);
  if (!queue_) return -FI_ENOEQ;
  if (listening_) return -FI_EOPBADSTATE;
  // Without an address it listens on a port that the kernel chooses.
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

// fi_eq(3): the fi_info of FI_CONNREQ describes the endpoint to open, with the addresses of this
// connection and a handle for fi_endpoint or fi_reject.
// Takes no lock, because the queue's is held and bind() takes the two in the other order. The
// request is stored last, when nothing that may throw is left.
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

int control(fid* handle, int command, void* argument) {
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  if (!argument) return -FI_EINVAL;
  return object_of<PassiveEndpoint>(handle).set_backlog(*static_cast<const int*>(argument));
}

int listen(fid_pep* endpoint) {
  return static_cast<PassiveEndpoint&>(*endpoint).listen();
}

int reject(fid_pep* endpoint, fid_t request, const void* data, std::size_t bytes) {
  return static_cast<PassiveEndpoint&>(*endpoint).reject(request, connection_data(data, bytes));
}

// FI_OPT_CM_DATA_SIZE is the only option of a passive endpoint. It can be read but not set.
int get_option(fid_t /*handle*/, int level, int name, void* value, std::size_t* bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return give_connection_data_size(value, bytes);
}

// Only active endpoints have options that can be set.
int set_option(fid_t /*handle*/, int /*level*/, int /*name*/, const void* /*value*/,
               std::size_t /*bytes*/) {
  return -FI_ENOPROTOOPT;
}

constinit fi_ops fid_ops = endpoint_fid_ops<PassiveEndpoint>(guarded<control>);

constinit fi_ops_ep passive_ops = option_ops(guarded<get_option>, set_option);

constinit fi_ops_cm cm_ops = [] {
  fi_ops_cm ops = name_ops<PassiveEndpoint>();
  ops.listen = guarded<listen>;
  ops.reject = guarded<reject>;
  return ops;
}();

}  // namespace

PassiveEndpoint::PassiveEndpoint(Fabric& fabric, const fi_info& info, void* context)
    : fid_pep{{FI_CLASS_PEP, context, &fid_ops}, &passive_ops, &cm_ops},
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
