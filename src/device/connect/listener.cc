#include "device/connect/listener.h"

#include <netinet/in.h>

#include <cerrno>
#include <utility>

#include "base/after_fork.h"
#include "device/addresses.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// After the kernel has refused a descriptor, asking again at once is useless.
constexpr std::uint64_t out_of_descriptors_ns = 50'000'000;
// A legitimate client sends its request as soon as it is connected, but its thread may have to wait
// for a processor first. Younger connections do not make room for others.
constexpr std::uint64_t youngest_evicted_ns = 50'000'000;
// Requests without TCP that the program has not fetched. Beyond it clients use TCP, whose queue is
// longer.
constexpr std::size_t max_requests_without_tcp = 1024;

// accept(2): with these errors the connection stays in the queue, and epoll would report it again
// at once.
bool out_of_resources(int error) {
  return error == -EMFILE || error == -ENFILE || error == -ENOBUFS || error == -ENOMEM;
}

bool is_listening(int socket) {
  int listens = 0;
  socklen_t bytes = sizeof listens;
  return sys::get_option(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) >= 0 && listens != 0;
}

bool has_option(int socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return sys::get_option(socket, level, name, &value, &bytes) >= 0 && value != 0;
}

// Otherwise the kernel shares the clients out among several sockets.
bool is_alone_at_port(int socket) {
  return !has_option(socket, SOL_SOCKET, SO_REUSEPORT);
}

// The address at which the socket listens. One for all addresses of IPv6 usually has those of IPv4
// as well (ipv6(7)).
std::vector<sockaddr_storage> addresses_of(int socket) {
  sockaddr_storage bound{};
  if (sys::local_address(socket, &bound) < 0) return {};
  std::vector<sockaddr_storage> addresses{bound};
  if (bound.ss_family == AF_INET6 && is_any_address(bound) &&
      !has_option(socket, IPPROTO_IPV6, IPV6_V6ONLY)) {
    sockaddr_storage any{};
    any.ss_family = AF_INET;
    set_port(any, port_of(bound));
    addresses.push_back(any);
  }
  return addresses;
}

}  // namespace

Listener::Listener(Device& device, Plan plan) : device_(device), plan_(std::move(plan)) {}

int Listener::start() {
  const std::lock_guard lock(mutex_);
  offer_local();
  watch();
  return token_ == 0 && plan_.socket.valid() ? ENOMEM : 0;
}

void Listener::close_socket() {
  on_ready(EPOLLIN);
  const std::lock_guard lock(mutex_);
  pause();
  forget_local();
  plan_.socket.reset();
}

void Listener::open_socket(sys::Descriptor listening) {
  const std::lock_guard lock(mutex_);
  if (plan_.socket.valid()) return;
  sys::set_nonblocking(listening.get());
  plan_.socket = std::move(listening);
  offer_local();
  watch();
}

// With the lock. Before the first connection can come: see local/local_channel.h.
void Listener::offer_local() {
  if (device_.settings().same_host == SameHost::off || !plan_.socket.valid()) return;
  has_local_ = device_.local_listeners().add(plan_.socket.get());
  sockaddr_storage address{};
  if (has_local_ && sys::local_address(plan_.socket.get(), &address) >= 0) {
    device_.process_pairs().add(address, shared_from_this());
  }
}

// With the lock.
void Listener::forget_local() {
  if (!std::exchange(has_local_, false)) return;
  device_.local_listeners().remove(plan_.socket.get());
  device_.process_pairs().remove(*this);
}

// The handshakes are cancelled without this lock, because they call this listener with their own
// held.
void Listener::stop() {
  std::vector<std::shared_ptr<InboundHandshake>> unfinished;
  {
    const std::lock_guard lock(mutex_);
    pause();
    forget_local();
    forget_announced();
    plan_.socket.reset();
    unfinished.swap(unfinished_);
  }
  for (const auto& inbound : unfinished) {
    device_.half_open().remove(*inbound);
    inbound->cancel();
  }
}

void Listener::abandon_after_fork() {
  // The engine has closed what it watched.
  // Closing the number again could close a descriptor that the child has opened since.
  if (token_ != 0) (void)plan_.socket.release();
  plan_.socket.reset();
  announced_.reset();
  token_ = 0;
  walk_after_fork(mutex_, [this] {
    for (const auto& inbound : unfinished_) inbound->abandon_after_fork();
  });
}

void Listener::watch() {
  if (token_ != 0 || !plan_.socket.valid()) return;
  token_ = device_.engine().watch(plan_.socket.get(), EPOLLIN, shared_from_this());
}

// Connections wait in TCP's queue meanwhile, up to the backlog that listen(2) was given.
void Listener::pause() {
  if (token_ != 0) device_.engine().unwatch(token_);
  token_ = 0;
}

// The backlog of rdma_listen(3): requests that the program has not fetched yet.
bool Listener::has_room() const {
  return requests_ < plan_.max_requests;
}

// Ends when the queue of TCP is empty, or when no more may be accepted. In the latter case epoll
// would report the socket without pause, so it is not watched for a while.
void Listener::on_ready(std::uint32_t /*events*/) {
  while (make_room()) {
    sockaddr_storage peer{};
    const auto inbound = accept_one(peer);
    if (!inbound) return;
    inbound->start(plan_.handshake_timeout_ns);
    limit_source(peer);
  }
  const std::lock_guard lock(mutex_);
  pause();
  device_.engine().call_at(sys::now_ns() + youngest_evicted_ns, shared_from_this());
}

// Closes the oldest silent connection where too many are half open. False where all of them are too
// young for that: then newcomers wait in TCP's queue for a moment. Without any lock.
bool Listener::make_room() {
  while (device_.half_open().full()) {
    const auto oldest = device_.half_open().oldest(sys::now_ns() - youngest_evicted_ns);
    if (!oldest) return false;
    oldest->evict();
  }
  return true;
}

void Listener::on_deadline() {
  const std::lock_guard lock(mutex_);
  if (has_room()) watch();
}

// Accepts one connection at a time, so that the limits are checked for each.
std::shared_ptr<InboundHandshake> Listener::accept_one(sockaddr_storage& peer) {
  const std::lock_guard lock(mutex_);
  if (!plan_.socket.valid()) return nullptr;
  // request_fetched() watches again.
  if (!has_room()) {
    pause();
    return nullptr;
  }
  int accepted = sys::accept(plan_.socket.get(), &peer);
  // ECONNABORTED: this client has given up, the next one may be waiting.
  while (accepted == -EINTR || accepted == -ECONNABORTED) {
    accepted = sys::accept(plan_.socket.get(), &peer);
  }
  if (accepted < 0) {
    if (out_of_resources(accepted)) {
      ++device_.refusals().out_of_descriptors;
      pause();
      device_.engine().call_at(sys::now_ns() + out_of_descriptors_ns, shared_from_this());
    }
    return nullptr;
  }
  return begin_handshake(sys::Descriptor(accepted), peer);
}

// One address cannot take all the places: its own oldest silent connections make room for its new
// ones. Without any lock.
void Listener::limit_source(const sockaddr_storage& peer) {
  while (device_.half_open().crowded(peer)) {
    const auto oldest = device_.half_open().oldest_from(peer);
    if (!oldest) return;
    oldest->evict();
  }
}

// Another process may have announced the same socket before: then its own connections only are
// found.
void Listener::announce(sys::Descriptor listening) {
  const std::lock_guard lock(mutex_);
  if (announced_.valid() || !device_.local_listeners().add(listening.get())) return;
  announced_ = std::move(listening);
}

int Listener::serve_host(bool serves) {
  const std::lock_guard lock(mutex_);
  if (!announced_.valid()) return EINVAL;
  if (!serves) {
    forget_announced();
  } else if (!serves_host_ && is_alone_at_port(announced_.get())) {
    serves_host_ = true;
    for (const auto& address : addresses_of(announced_.get())) {
      device_.process_pairs().add(address, shared_from_this());
    }
  }
  return 0;
}

// With the lock. Peers do not find this process any more.
void Listener::forget_announced() {
  if (std::exchange(serves_host_, false)) device_.process_pairs().remove(*this);
  if (announced_.valid()) device_.local_listeners().remove(announced_.get());
  announced_.reset();
}

// A connection that another process has accepted, or its listening socket.
int Listener::adopt(sys::Descriptor connection) {
  if (is_listening(connection.get())) {
    announce(std::move(connection));
    return 0;
  }
  sockaddr_storage peer{};
  if (const int failed = sys::peer_address(connection.get(), &peer); failed < 0) return -failed;
  if (const int failed = sys::set_nonblocking(connection.get()); failed < 0) return -failed;
  clear_inherited_options(connection.get());
  // Unlike a connection in TCP's queue, this one cannot wait.
  if (!make_room()) return ENOBUFS;
  std::shared_ptr<InboundHandshake> inbound;
  {
    const std::lock_guard lock(mutex_);
    if (!has_room()) return ENOBUFS;
    inbound = begin_handshake(std::move(connection), peer);
  }
  inbound->start(plan_.handshake_timeout_ns);
  return 0;
}

void Listener::take(PairEnd end, const TcpEnds& ends, Bytes frame) {
  std::shared_ptr<InboundHandshake> inbound;
  {
    const std::lock_guard lock(mutex_);
    const bool listens = plan_.socket.valid() || serves_host_;
    const bool full = serves_host_ && requests_ >= max_requests_without_tcp;
    if (!listens || !has_room() || full) {
      return end.refuse({}, pair_message::Answer::busy);
    }
    inbound = make_inbound(StreamSocket(std::move(end), ends));
    if (!inbound->take_request(frame)) {
      ++device_.refusals().malformed;
      return;
    }
    ++requests_;
  }
  plan_.requested(inbound);
}

// With the lock.
std::shared_ptr<InboundHandshake> Listener::begin_handshake(sys::Descriptor fd,
                                                            const sockaddr_storage& peer) {
  TcpEnds ends{.remote = peer};
  sys::local_address(fd.get(), &ends.local);
  tune(fd.get(), ends.within_host());
  apply_tos(fd.get(), peer.ss_family, plan_.tos);
  auto inbound = make_inbound(std::move(fd), ends);
  unfinished_.push_back(inbound);
  device_.half_open().add(inbound, peer, sys::now_ns());
  return inbound;
}

// Not make_shared: the engine's alarms remember it for long, and shall not keep its memory.
std::shared_ptr<InboundHandshake> Listener::make_inbound(sys::Descriptor fd, const TcpEnds& ends) {
  return make_inbound(StreamSocket(std::move(fd), ends, device_.capture(), false));
}

std::shared_ptr<InboundHandshake> Listener::make_inbound(StreamSocket socket) {
  const iwarp::HandshakeOptions options{.crc = device_.settings().crc,
                                        .mark = true,
                                        .words = device_.offers_words(),
                                        .max_ird = limits::max_wire_read_depth};
  // NOLINTNEXTLINE(modernize-make-shared)
  return std::shared_ptr<InboundHandshake>(new InboundHandshake(
      device_, std::move(socket), options,
      [weak = weak_from_this()](const auto& arrived) {
        if (const auto self = weak.lock()) self->on_requested(arrived);
      },
      [weak = weak_from_this()](const auto& failed) {
        if (const auto self = weak.lock()) self->on_failed(failed);
      }));
}

void Listener::on_requested(const std::shared_ptr<InboundHandshake>& inbound) {
  {
    const std::lock_guard lock(mutex_);
    // Where it is missing, stop() has taken it and cancels it.
    if (std::erase(unfinished_, inbound) == 0) return;
    ++requests_;
  }
  // It has sent its request, so it is not half open any more; from here on `requests_` limits it.
  device_.half_open().remove(*inbound);
  plan_.requested(inbound);
}

// The handshake has ended without a request. Its place is free, so a listener that had stopped
// accepting may go on.
void Listener::on_failed(const std::shared_ptr<InboundHandshake>& inbound) {
  if (plan_.dropped) plan_.dropped();
  device_.half_open().remove(*inbound);
  const std::lock_guard lock(mutex_);
  std::erase(unfinished_, inbound);
  if (has_room()) watch();
}

void Listener::request_fetched() {
  const std::lock_guard lock(mutex_);
  --requests_;
  if (has_room()) watch();
}

}  // namespace weft::device
