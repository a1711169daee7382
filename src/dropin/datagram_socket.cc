#include "dropin/datagram_socket.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "dropin/rsocket.h"

namespace weft::dropin {
namespace {

using stream::detail::StreamThread;

constexpr int max_pending_requests = 1024;
// The bytes before the payload of a received datagram. A UD queue pair writes 40 bytes of GRH in
// front of each message.
constexpr std::size_t header_bytes = verbs::grh_bytes + DatagramAddress::wire_bytes;

// ibv_mtu is an enumeration: 1 is 256 bytes, and each step doubles.
std::size_t mtu_bytes(const verbs::Context& context) {
  return std::size_t{128} << context.query_port(1).raw().active_mtu;
}

// The number of datagrams that fit into a buffer, at least one.
std::uint32_t places(std::uint32_t buffer_bytes, std::size_t place_bytes, std::uint32_t max) {
  return std::clamp(static_cast<std::uint32_t>(buffer_bytes / place_bytes), 1U, max);
}

}  // namespace

std::shared_ptr<DatagramSocket> DatagramSocket::open(const stream::Address& local,
                                                     const stream::Options& options) {
  std::shared_ptr<DatagramSocket> made(new DatagramSocket(local, options));
  made->start();
  return made;
}

DatagramSocket::DatagramSocket(const stream::Address& local, const stream::Options& options)
    : spin_(options.spin),
      events_(options.backend),
      context_(verbs::open_device({}, options.backend)),
      domain_(context_.create_domain()),
      channel_(context_.create_channel()) {
  prepare(options);
  listener_.emplace(events_, RDMA_PS_UDP);
  listener_->bind(local);
  listener_->listen(max_pending_requests);
  local_ = DatagramAddress::of(local_of(*listener_));
}

// A datagram with its address must fit into one UD message, which is limited by the MTU.
void DatagramSocket::prepare(const stream::Options& options) {
  max_message_bytes_ = mtu_bytes(context_) - DatagramAddress::wire_bytes;
  send_place_bytes_ = DatagramAddress::wire_bytes + max_message_bytes_;
  receive_place_bytes_ = header_bytes + max_message_bytes_;
  const auto sends = places(options.send_buffer_bytes, send_place_bytes_, options.send_queue);
  const auto receives =
      places(options.receive_buffer_bytes, receive_place_bytes_, options.receive_queue);
  queue_.emplace(
      context_.create_completion_queue(static_cast<int>(sends + receives), {.channel = &channel_}));
  auto builder = domain_.queue_pair(*queue_, *queue_, IBV_QPT_UD);
  builder.max_send_requests(sends).max_receive_requests(receives);
  send_memory_.emplace(domain_.allocate<std::byte>(sends * send_place_bytes_));
  receive_memory_.emplace(domain_.allocate<std::byte>(receives * receive_place_bytes_));
  queue_pair_.emplace(builder.build().activate(RDMA_UDP_QKEY));
  in_use_.resize(sends);
  for (std::uint32_t place = 0; place < sends; ++place) free_places_.push_back(place);
  for (std::uint32_t place = 0; place < receives; ++place) post_receive(place);
}

// Not in the constructor: the stream thread needs a weak pointer to this object.
void DatagramSocket::start() {
  StreamThread& thread = StreamThread::instance();
  const Lock lock(mutex_);
  token_ = thread.add(weak_from_this());
  thread.watch(*token_, events_.fd());
  thread.watch(*token_, channel_.fd());
  take_events();  // requests that came before watch()
}

DatagramSocket::~DatagramSocket() {
  close();
}

void DatagramSocket::close() {
  const Lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  if (token_) StreamThread::instance().remove(*token_, std::array{events_.fd(), channel_.fd()});
  peers_.clear();
  listener_.reset();
  changed_.notify_all();
  notify();
}

// --- Readiness -----------------------------------------------------------------------------------

std::optional<DatagramAddress> DatagramSocket::peer() {
  const Lock lock(mutex_);
  return connected_;
}

int DatagramSocket::take_error() {
  const Lock lock(mutex_);
  return std::exchange(error_, 0);
}

// A pending error makes the socket readable and writable, so that a call reports it.
stream::Stream::Readiness DatagramSocket::readiness_now() const {
  stream::Stream::Readiness ready;
  ready.readable = closed_ || error_ != 0 || !arrived_.empty();
  ready.writable = closed_ || error_ != 0 || !free_places_.empty();
  ready.settled = true;
  ready.over = closed_;
  return ready;
}

stream::Stream::Readiness DatagramSocket::watch(stream::Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  watchers_.push_back(watcher);
  arm();
  process();
  return readiness_now();
}

void DatagramSocket::unwatch(stream::Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  std::erase(watchers_, watcher);
}

stream::Stream::Readiness DatagramSocket::readiness() {
  const Lock lock(mutex_);
  process();
  return readiness_now();
}

// Called by the stream thread. Arms the completion queue again only if a thread still waits.
void DatagramSocket::on_io() noexcept {
  const Lock lock(mutex_);
  if (closed_) return;
  try {
    while (channel_.wait(Deadline::now())) armed_ = false;
    take_events();
    if (sleepers_ > 0 || !watchers_.empty()) arm();
    process();
  } catch (const std::exception&) {
    // Out of memory or descriptors: datagrams may be lost, as with UDP.
  }
}

// With mutex_ held.
void DatagramSocket::arm() {
  if (armed_ || closed_) return;
  armed_ = true;
  queue_->arm();
  process();  // completions before arm() raise no event
}

// With mutex_ held. Watchers are called only if the readiness has changed.
void DatagramSocket::notify() {
  if (sleepers_ > 0) changed_.notify_all();
  const auto ready = readiness_now();
  if (ready == reported_) return;
  reported_ = ready;
  for (stream::Stream::Watcher* watcher : watchers_) watcher->changed(ready);
}

}  // namespace weft::dropin
