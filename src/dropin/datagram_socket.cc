#include "dropin/datagram_socket.h"

#include <algorithm>
#include <memory>

#include "dropin/rsocket.h"

namespace weft::dropin {
namespace {

// The backlog of the listener. Many peers may resolve this socket at once, such as the clients of a
// server that has just been restarted.
constexpr int max_pending_requests = 1024;
}  // namespace

std::shared_ptr<DatagramSocket> DatagramSocket::open(const stream::Address& local,
                                                     const stream::Options& options) {
  std::shared_ptr<DatagramSocket> made(new DatagramSocket(local, options));
  made->start();
  return made;
}

DatagramSocket::DatagramSocket(const stream::Address& local, const stream::Options& options)
    : spin_(options.spin), events_(options.backend), endpoint_(options) {
  listener_.emplace(events_, RDMA_PS_UDP);
  if (options.ipv6_only) listener_->set_ipv6_only(true);
  listener_->bind(local);
  listener_->listen(max_pending_requests);
  // Port 0 has become a free port, and peers have to get the real one.
  local_ = DatagramAddress::of(local_of(*listener_));
}

// Not in the constructor: the stream thread needs a weak pointer to this object.
void DatagramSocket::start() {
  const Lock lock(mutex_);
  registration_.enter(weak_from_this());
  observed_.set(true);
  registration_.watch(events_.fd());
  registration_.watch(endpoint_.fd());
  take_events();  // requests that came before watch()
}

DatagramSocket::~DatagramSocket() {
  close();
}

// Both rclose() and the destructor come here; the second call does nothing.
void DatagramSocket::close() {
  const Lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  // The stream thread must not poll descriptors that are closed and perhaps used again.
  registration_.leave();
  peers_.clear();
  // The port is free from here on, although a call that blocks may still hold this object.
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
  return report_error();
}

// With mutex_ held. The socket is ready for less than before, which watchers have to know: they are
// called at the next change.
int DatagramSocket::report_error() {
  const int error = std::exchange(error_, 0);
  notify();
  return error;
}

// A pending error makes the socket readable and writable, so that a call reports it.
stream::Stream::Readiness DatagramSocket::readiness_now() const {
  stream::Stream::Readiness ready;
  ready.readable = closed_ || error_ != 0 || !arrived_.empty();
  ready.writable = closed_ || error_ != 0 || endpoint_.can_send();
  // There is no phase of connecting, in which a stream reports nothing.
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

// Watchers are called with mutex_ held. So no call of this watcher is in progress when this
// returns, and the watcher can be destroyed.
void DatagramSocket::unwatch(stream::Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  std::erase(watchers_, watcher);
}

stream::Stream::Readiness DatagramSocket::readiness() {
  const Lock lock(mutex_);
  process();
  return readiness_now();
}

// The threads that were waiting do not exist in the child, and one may have held the lock.
void DatagramSocket::begin_anew_in_child() noexcept {
  std::construct_at(&mutex_);
  std::construct_at(&changed_);
  std::construct_at(&watchers_);
  sleepers_ = 0;
}

// Called by the stream thread. Arms the completion queue again only if a thread still waits.
void DatagramSocket::on_io() noexcept {
  const Lock lock(mutex_);
  if (closed_) return;
  try {
    if (endpoint_.take_events()) armed_ = false;
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
  endpoint_.arm();
  process();  // completions before arm() raise no event
}

// With mutex_ held. Watchers are called only if the readiness has changed.
void DatagramSocket::notify() {
  if (sleepers_ > 0) changed_.notify_all();
  const auto ready = readiness_now();
  if (ready == reported_) return;
  reported_ = ready;
  // A watcher must not call this object, because the lock is held.
  for (stream::Stream::Watcher* watcher : watchers_) watcher->changed(ready);
}

}  // namespace weft::dropin
