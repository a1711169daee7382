#include "fabric/endpoint.h"

#include <rdma/fi_errno.h>

#include "fabric/endpoint_calls.h"
#include "fabric/options.h"
#include "fabric/table_functions.h"

namespace weft::fabric {

// The passive side has the addresses of its connection already. On the active side a wildcard binds
// to nothing, so that the source is chosen when the endpoint connects.
Endpoint::Endpoint(Domain& domain, const fi_info& info, std::optional<stream::Request> request,
                   void* context)
    : fid_ep(handle_of_endpoint(context)),
      use_(domain.users()),
      info_(copy_of(info)),
      options_(options_of(info)),
      passive_(request.has_value()),
      request_(std::move(request)) {
  if (passive_) return;
  const auto source = read_address(info.src_addr, info.src_addrlen);
  if (source && !is_wildcard(*source)) local_ = source;
}

// The queue forgets the endpoint first: a thread that reads the queue calls notice_of(), which uses
// the stream. Closing the stream blocks for the linger time.
Endpoint::~Endpoint() {
  if (queue_) queue_->remove(cookie_);
  stream_.reset();
}

// --- Setting up ----------------------------------------------------------------------------------

int Endpoint::bind(EventQueue& queue) {
  const std::lock_guard lock(mutex_);
  if (enabled_) return -FI_EOPBADSTATE;
  // An endpoint reports to one event queue, so a second one is refused.
  if (queue_) return -FI_EINVAL;
  queue_use_.emplace(queue.users());
  cookie_ = queue.add(*this);
  queue_ = &queue;
  return 0;
}

// A copy is changed first, so that a call that fails leaves the options as they were.
int Endpoint::set_option(int level, int name, const void* value, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  stream::Options changed = options_;
  if (const int error = fabric::set_option(changed, level, name, value, bytes)) return error;
  if (enabled_) return -FI_EOPBADSTATE;
  options_ = changed;
  return 0;
}

int Endpoint::get_option(int level, int name, void* value, std::size_t* bytes) {
  const std::lock_guard lock(mutex_);
  return fabric::get_option(options_, level, name, value, bytes);
}

int Endpoint::set_address(const SocketAddress& address) {
  const std::lock_guard lock(mutex_);
  if (enabled_ || passive_) return -FI_EOPBADSTATE;
  local_ = address;
  return 0;
}

int Endpoint::enable() {
  const std::lock_guard lock(mutex_);
  return enable_locked();
}

// With mutex_ held. fi_endpoint(3): connect and accept enable an endpoint implicitly. On the
// passive side the stream exists only after accept().
int Endpoint::enable_locked() {
  if (!queue_) return -FI_ENOEQ;
  if (enabled_) return 0;
  if (!passive_) {
    stream::Stream stream(options_);
    if (local_) stream.bind(to_text(*local_));
    start(std::move(stream));
  }
  enabled_ = true;
  return 0;
}

// The descriptor that fd() returned before now follows the stream. live_ is set before events can
// come, because notice_of() reads it.
void Endpoint::start(stream::Stream stream) {
  stream_.emplace(std::move(stream));
  if (wait_set_) wait_set_->add(stream_->fd());
  live_.store(&*stream_, std::memory_order_release);
  stream_->attach(&queue_->events(), cookie_);
}

// --- Connecting ----------------------------------------------------------------------------------

int Endpoint::connect(const void* address, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  if (passive_) return -FI_EOPBADSTATE;
  // fi_connect(3) passes no size of the address, so the family decides. Without an address the
  // destination is that of the fi_info.
  auto peer = read_address(address);
  if (!address) peer = read_address(info_->dest_addr, info_->dest_addrlen);
  if (!peer) return -FI_EINVAL;
  if (const int error = enable_locked()) return error;
  stream_->start_connecting(to_text(*peer), data);
  return 0;
}

int Endpoint::accept(std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  if (!request_) return -FI_EOPBADSTATE;
  // Before the request is taken: if there is no event queue yet, accept() can be called again.
  if (const int error = enable_locked()) return error;
  stream::Request request = std::move(*request_);
  request_.reset();
  start(std::move(request).accept(data, options_));
  return 0;
}

// Ends the sending side of a connection; a connection attempt is given up.
int Endpoint::shut_down() {
  stream::Stream* const stream = this->stream();
  if (!stream) return -FI_ENOTCONN;
  switch (stream->state()) {
    case stream::State::idle:
    case stream::State::closed:
      return -FI_ENOTCONN;
    // An attempt that is under way has no sending side to end.
    case stream::State::connecting:
      stream->abort();
      return 0;
    case stream::State::connected:
    case stream::State::failed:
      break;
  }
  stream->finish();
  return 0;
}

// The stream knows the port that the kernel has chosen. Without a stream the
// address is that of set_address() or of the fi_info.
std::optional<SocketAddress> Endpoint::address() {
  const std::lock_guard lock(mutex_);
  if (stream_) {
    try {
      if (const auto known = from_text(stream_->local_address())) return known;
    } catch (const Error&) {
      return local_;  // the stream is neither bound nor connected
    }
  }
  return passive_ ? read_address(info_->src_addr, info_->src_addrlen) : local_;
}

// Without the lock, since live_ is set once. A stream that has failed still knows its peer.
std::optional<SocketAddress> Endpoint::peer_address() {
  const stream::Stream* const stream = this->stream();
  if (!stream) return std::nullopt;
  const auto state = stream->state();
  if (state == stream::State::idle || state == stream::State::connecting) return std::nullopt;
  return from_text(stream->peer_address());
}

int Endpoint::fd() {
  const std::lock_guard lock(mutex_);
  if (wait_set_) return wait_set_->fd();
  if (stream_) return stream_->fd();
  // There is no stream yet. The set can be returned now, and the stream's descriptor is added to it
  // later.
  wait_set_.emplace();
  return wait_set_->fd();
}

// Called with the queue's lock held, so it must not take mutex_: bind() holds that one when it
// calls EventQueue::add().
std::optional<Notice> Endpoint::notice_of(stream::Event event) {
  stream::Stream* const stream = this->stream();
  if (!stream) return std::nullopt;
  Notice notice;
  notice.handle = &this->fid;
  switch (event.type) {
    case stream::EventType::connect_request:
      return std::nullopt;
    case stream::EventType::connected:
      notice.event = FI_CONNECTED;
      (void)stream->state();  // clears the stream's own notification: the queue reports it
      // fi_eq(3): no private data on the passive side.
      if (!passive_) {
        const auto data = stream->peer_private_data();
        notice.data.assign(data.begin(), data.end());
      }
      return notice;
    case stream::EventType::shutdown:
      notice.event = FI_SHUTDOWN;
      return notice;
    case stream::EventType::failed:
      break;
  }
  notice.is_error = true;
  notice.error = event.error_number;
  try {
    // The stream reports its failure again as an exception, which has the private data of a
    // refusal.
    (void)stream->await_connected(Deadline::now());
  } catch (const stream::Rejected& refused) {
    notice.data = refused.private_data();
  } catch (const Error&) {
    // The error number is all there is.
  }
  return notice;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  if (!info || !endpoint) return -FI_EINVAL;
  auto& opened = static_cast<Domain&>(*domain);
  std::optional<stream::Request> request;
  if (info->handle) {
    // The handle is compared and never dereferenced: its listener may be closed, which drops the
    // request. A passive endpoint, which fi_endpoint(3) allows here as well, is no request.
    request = opened.fabric().requests().take(info->handle);
    if (!request) return -FI_EINVAL;
  }
  *endpoint = new Endpoint(opened, *info, std::move(request), context);
  return 0;
}

}  // namespace weft::fabric
