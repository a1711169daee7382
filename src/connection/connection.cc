#include "weft/connection/connection.hpp"

#include <fmt/format.h>

#include "connection/core.h"

namespace weft::connection {

std::string_view Outcome::status_name() const {
  return verbs::status_name(status);
}

// --- Endpoint ------------------------------------------------------------------------------------

Endpoint::Endpoint(std::unique_ptr<detail::Core> core) : core_(std::move(core)) {}
Endpoint::Endpoint(Endpoint&&) noexcept = default;
Endpoint& Endpoint::operator=(Endpoint&&) noexcept = default;
Endpoint::~Endpoint() = default;

std::unique_ptr<detail::Core> Endpoint::take() {
  return std::move(core_);
}

Buffer Endpoint::allocate(std::size_t bytes, Access access) const {
  return core_->make_buffer(bytes, {}, access);
}

Buffer Endpoint::register_buffer(std::span<std::byte> memory, Access access) const {
  if (memory.empty()) throw Error(EINVAL, "cannot register a buffer of no bytes");
  return core_->make_buffer(memory.size(), memory, access);
}

int Endpoint::post_receive(std::span<const LocalSlice> into, std::uint64_t id) {
  return core_->post_receive(into, id);
}

std::string Endpoint::local_address() const {
  return core_->id().local_address();
}

std::string Endpoint::peer_address() const {
  return core_->id().peer_address();
}

const verbs::Id& Endpoint::id() const {
  return core_->id();
}

const verbs::ProtectionDomain& Endpoint::domain() const {
  return core_->domain();
}

const verbs::QueuePair& Endpoint::queue_pair() const {
  return core_->queue_pair();
}

const verbs::CompletionQueue& Endpoint::completion_queue(Queue queue) const {
  return core_->completion_queue(queue);
}

// --- Prepared ------------------------------------------------------------------------------------

namespace {

std::unique_ptr<detail::Core> resolve(const Address& peer, const Options& options,
                                      detail::Waiter& waiter) {
  // The deadline is ours to keep; this only ends what nobody waits for any more.
  constexpr std::chrono::seconds long_enough{60};
  verbs::EventChannel events(options.backend);
  verbs::Id id(events);
  const std::string what = fmt::format("resolve {} port {}", peer.host, peer.port);
  id.resolve_address(peer, long_enough);
  for (const auto wanted : {RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED}) {
    const auto event = detail::next_event(events, waiter, what);
    if (event.type() != wanted) {
      throw Error(event.status() < 0 ? -event.status() : EHOSTUNREACH,
                  fmt::format("cannot {}: {}", what, event.name()));
    }
    if (wanted == RDMA_CM_EVENT_ADDR_RESOLVED) id.resolve_route(long_enough);
  }
  return std::make_unique<detail::Core>(std::move(events), std::move(id), options);
}

std::unique_ptr<detail::Core> resolve(const Address& peer, const Options& options,
                                      Deadline deadline, std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  return resolve(peer, options, waiter);
}

}  // namespace

Prepared::Prepared(const Address& peer, const Options& options, Deadline deadline,
                   std::stop_token stop)
    : Endpoint(resolve(peer, options, deadline, std::move(stop))) {}

Connection Prepared::connect(const Greeting& greeting, Deadline deadline, std::stop_token stop) && {
  detail::Waiter waiter(deadline, std::move(stop));
  core().connect(greeting, waiter);
  return Connection(take());
}

// --- Connection ----------------------------------------------------------------------------------

Connection::Connection(std::unique_ptr<detail::Core> core) : Endpoint(std::move(core)) {}

std::span<const std::byte> Connection::peer_private_data() const {
  return core().peer_private_data();
}

int Connection::post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags) {
  return core().post_send(from, id, flags);
}

namespace {

std::uint64_t bytes_of(std::span<const LocalSlice> slices) {
  std::uint64_t bytes = 0;
  for (const LocalSlice& slice : slices) bytes += slice.size_bytes();
  return bytes;
}

// The part of the peer's buffer that a request is about; nothing where it is too small.
std::optional<RemoteBuffer> part_of(const RemoteBuffer& buffer, std::uint64_t offset,
                                    std::uint64_t bytes) {
  if (bytes > buffer.size_bytes() || offset > buffer.size_bytes() - bytes) return std::nullopt;
  return buffer.slice(offset, bytes);
}

}  // namespace

int Connection::post_write(std::span<const LocalSlice> from, const RemoteBuffer& to,
                           std::uint64_t offset_bytes, std::uint64_t id, SendFlags flags) {
  const auto part = part_of(to, offset_bytes, bytes_of(from));
  return part ? core().post_write(from, *part, id, flags) : EMSGSIZE;
}

int Connection::post_read(std::span<const LocalSlice> into, const RemoteBuffer& from,
                          std::uint64_t offset_bytes, std::uint64_t id, SendFlags flags) {
  const auto part = part_of(from, offset_bytes, bytes_of(into));
  return part ? core().post_read(into, *part, id, flags) : EMSGSIZE;
}

std::vector<Outcome> Connection::await(Queue queue, std::size_t count, Deadline deadline,
                                       std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  return core().await(queue, count, waiter);
}

int Connection::fd(Queue queue) const {
  return core().fd(queue);
}

bool Connection::can_advertise() const {
  return core().can_advertise();
}

void Connection::advertise(const RemoteBuffer& buffer, std::uint32_t tag) {
  core().advertise({buffer, tag});
}

std::optional<Advertisement> Connection::await_advertisement(Deadline deadline,
                                                             std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  return core().await_advertisement(waiter);
}

void Connection::disconnect() {
  core().disconnect();
}

bool Connection::await_disconnect(Deadline deadline, std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  return core().await_disconnect(waiter);
}

int Connection::disconnect_fd() const {
  return core().events().fd();
}

}  // namespace weft::connection
