#include "dropin/rsocket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

#include "dropin/mapped_address.h"
#include "dropin/provider_table.h"

namespace weft::dropin {
namespace {

// The value of librdmacm, where rsockets have larger rings than libfabric's rstream.
constexpr std::uint32_t buffer_bytes = 128 * 1024;

struct Table {
  std::mutex mutex;
  std::unordered_map<int, std::shared_ptr<Rsocket>> sockets;
  stream::detail::ForkHandler fork_handler{
      this, [](void* self) noexcept { std::construct_at(&static_cast<Table*>(self)->mutex); }};
};

// Never destroyed: threads of the program may use it until the process ends.
Table& all() {
  static Table* const made = new Table();
  return *made;
}

}  // namespace

Rsocket::Rsocket(int address_family, int socket_type, bool without_waiting)
    : family(address_family), type(socket_type), nonblocking(without_waiting) {
  options.send_buffer_bytes = options.receive_buffer_bytes = buffer_bytes;
  options.growth_bytes = stream::default_growth_bytes;
}

std::optional<stream::Keepalive> Rsocket::keepalive() const {
  if (!settings.keepalive) return std::nullopt;
  return stream::Keepalive{std::chrono::seconds(settings.keepalive_idle_s),
                           std::chrono::seconds(settings.keepalive_interval_s),
                           static_cast<std::uint32_t>(settings.keepalive_probes)};
}

// These return pointers of the caller's own, which it uses without the lock and also while another
// thread calls rclose().
std::shared_ptr<stream::Stream> Rsocket::get_stream() const {
  const std::lock_guard lock(mutex);
  return stream;
}

std::shared_ptr<RsocketListener> Rsocket::get_listener() const {
  const std::lock_guard lock(mutex);
  return listener;
}

std::shared_ptr<DatagramSocket> Rsocket::get_datagrams() const {
  const std::lock_guard lock(mutex);
  return datagrams;
}

void Rsocket::watch(stream::Stream::Watcher* watcher) {
  const std::lock_guard lock(mutex);
  watchers_.push_back(watcher);
}

// Watchers are called with `mutex` held, so no call is in progress when this returns.
void Rsocket::unwatch(stream::Stream::Watcher* watcher) {
  const std::lock_guard lock(mutex);
  std::erase(watchers_, watcher);
}

void Rsocket::notify() {
  const std::lock_guard lock(mutex);
  notify_locked();
}

void Rsocket::notify_locked() {
  for (stream::Stream::Watcher* watcher : watchers_) watcher->changed({});
}

// The threads that were watching do not exist in the child, and one may have held the lock.
void Rsocket::begin_anew_in_child() noexcept {
  std::construct_at(&mutex);
  std::construct_at(&watchers_);
}

// --- Descriptors ---------------------------------------------------------------------------------

// Always close-on-exec: the object does not survive execve(2), so its number must not either.
RsocketNumber::RsocketNumber() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw Error(errno, "no descriptor for an rsocket");
}

RsocketNumber::~RsocketNumber() {
  if (descriptor_ >= 0) release_rsocket(descriptor_);
}

int RsocketNumber::give_to(std::shared_ptr<Rsocket> socket) {
  const std::lock_guard lock(all().mutex);
  all().sockets[descriptor_] = std::move(socket);
  return std::exchange(descriptor_, -1);
}

std::shared_ptr<Rsocket> find_rsocket(int descriptor) {
  const std::lock_guard lock(all().mutex);
  const auto found = all().sockets.find(descriptor);
  return found == all().sockets.end() ? nullptr : found->second;
}

std::shared_ptr<Rsocket> take_rsocket(int descriptor) {
  const std::lock_guard lock(all().mutex);
  const auto found = all().sockets.find(descriptor);
  if (found == all().sockets.end()) return nullptr;
  auto socket = std::move(found->second);
  all().sockets.erase(found);
  return socket;
}

// Apart from take_rsocket(), because the stream may block while it ends. Its number stays reserved
// until then.
void release_rsocket(int descriptor) {
  close(descriptor);
}

// --- Addresses -----------------------------------------------------------------------------------

stream::Address to_address(const sockaddr* address, socklen_t bytes) {
  if (!address || bytes < sizeof(sa_family_t)) throw Error(EINVAL, "no address");
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) {
    throw Error(EAFNOSUPPORT, "the address is neither IPv4 nor IPv6");
  }
  const sockaddr_storage plain = without_mapping(address, bytes);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  // With numeric results there is no query of a name server, so this does not block. Only the
  // length of the address can be wrong.
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&plain),
                  std::min<socklen_t>(bytes, sizeof plain), host.data(), host.size(), port.data(),
                  port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    throw Error(EINVAL, "the address is too short");
  }
  return {host.data(), static_cast<std::uint16_t>(std::atoi(port.data()))};
}

DatagramAddress datagram_address(const sockaddr* address, socklen_t bytes) {
  (void)to_address(address, bytes);  // throws if it is invalid
  return DatagramAddress::of(without_mapping(address, bytes));
}

stream::Address any_address(const Rsocket& socket) {
  return {socket.family == AF_INET6 ? "::" : "0.0.0.0", 0};
}

// A socket that was not bound gets a free port by its first use, as in udp(7).
std::shared_ptr<DatagramSocket> need_datagrams(Rsocket& socket) {
  const std::lock_guard lock(socket.mutex);
  if (!socket.datagrams) {
    socket.datagrams = DatagramSocket::open(any_address(socket), socket.options);
    socket.notify_locked();
  }
  return socket.datagrams;
}

sockaddr_storage named_by(const Rsocket& socket, const sockaddr_storage& address) {
  const bool maps = socket.family == AF_INET6 && address.ss_family == AF_INET;
  return maps ? with_mapping(address) : address;
}

void give_address(const sockaddr_storage& from, sockaddr* address, socklen_t* bytes) {
  if (!address || !bytes) return;
  const socklen_t size = from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(address, &from, std::min(size, *bytes));
  *bytes = size;
}

// The results point into the id, and are valid as long as it is.
const sockaddr_storage& local_of(const verbs::Id& id) {
  return id.raw()->route.addr.src_storage;
}

const sockaddr_storage& peer_of(const verbs::Id& id) {
  return id.raw()->route.addr.dst_storage;
}

}  // namespace weft::dropin

// The stream layer gets its device by this name. In this library it is the device of libibverbs, so
// that a process has only one.
namespace weft::provider {

const Table& embedded();
const Table& embedded() {
  return dropin::table();
}

}  // namespace weft::provider
