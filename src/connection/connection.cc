#include "weft/connection/connection.hpp"

#include <fmt/format.h>

#include "connection/address_resolution.h"
#include "connection/core_waits.h"
#include "verbs/host_lookup.h"

namespace weft::connection {

std::string_view Outcome::status_name() const {
  return verbs::status_name(status);
}

// --- ConnectionEnd -------------------------------------------------------------------------------

ConnectionEnd::ConnectionEnd(std::unique_ptr<detail::Core> core) : core_(std::move(core)) {}
ConnectionEnd::ConnectionEnd(ConnectionEnd&&) noexcept = default;
ConnectionEnd& ConnectionEnd::operator=(ConnectionEnd&&) noexcept = default;
ConnectionEnd::~ConnectionEnd() = default;

// Hands the core on, for example from a Request to its Connection; this object is empty afterwards.
std::unique_ptr<detail::Core> ConnectionEnd::take() {
  return core_.take();
}

// An empty span means: allocate.
Buffer ConnectionEnd::allocate(std::size_t bytes, Access access) const {
  return core_->make_buffer(bytes, {}, access);
}

Buffer ConnectionEnd::register_buffer(std::span<std::byte> memory, Access access) const {
  if (memory.empty()) throw Error(EINVAL, "cannot register a buffer of no bytes");
  return core_->make_buffer(memory.size(), memory, access);
}

int ConnectionEnd::post_receive(std::span<const LocalSlice> into, std::uint64_t id) const {
  return core_->post_receive(into, id);
}

int ConnectionEnd::post_receive(const KeptSlice& into, std::uint64_t id) const {
  return core_->post_receive(std::span(&into.slice(), 1), id, nullptr, &into);
}

std::string ConnectionEnd::local_address() const {
  return core_->id().local_address();
}

std::string ConnectionEnd::peer_address() const {
  return core_->id().peer_address();
}

const verbs::Id& ConnectionEnd::id() const {
  return core_->id();
}

const verbs::ProtectionDomain& ConnectionEnd::domain() const {
  return core_->domain();
}

const verbs::QueuePair& ConnectionEnd::queue_pair() const {
  return core_->queue_pair();
}

const verbs::CompletionQueue& ConnectionEnd::completion_queue(Queue queue) const {
  return core_->side(queue).queue;
}

// --- Prepared ------------------------------------------------------------------------------------

namespace {

std::unique_ptr<detail::Core> resolve(const Address& peer, const Options& options,
                                      Deadline deadline, std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  verbs::detail::HostLookup lookup(options.backend, peer);
  if (lookup.has_begun()) {
    const std::string name = fmt::format("{} port {}", peer.host, peer.port);
    detail::check_woken(waiter.until(lookup), "resolve " + name, name);
  }
  detail::AddressResolution resolution(lookup.take(), options);
  detail::check_woken(waiter.until(resolution), resolution.what(), resolution.peer());
  return resolution.make();
}

}  // namespace

Prepared::Prepared(const Address& peer, const Options& options, Deadline deadline,
                   std::stop_token stop)
    : ConnectionEnd(resolve(peer, options, deadline, std::move(stop))) {}

Connection Prepared::connect(const Greeting& greeting, Deadline deadline, std::stop_token stop) && {
  const std::string peer = peer_address();
  // A second call would act on an identifier that is used up.
  auto core = take();  // destroyed where this throws: an id connects once
  detail::Waiter waiter(deadline, std::move(stop));
  core->begin_connecting(greeting);
  detail::ConnectedCondition connected(*core);
  detail::check_woken(waiter.until(connected), "connect to " + peer, peer);
  return Connection(std::move(core));
}

namespace {

std::optional<RemoteBuffer> operand_of(const LocalSlice& before, const RemoteBuffer& target,
                                       std::uint64_t offset_bytes) {
  constexpr std::size_t bytes = sizeof(std::uint64_t);
  if (before.size_bytes() != bytes) return std::nullopt;
  return detail::part_of(target, offset_bytes, std::span(&before, 1));
}

}  // namespace

// --- Connection ----------------------------------------------------------------------------------

Connection::Connection(std::unique_ptr<detail::Core> core) : ConnectionEnd(std::move(core)) {}

std::span<const std::byte> Connection::peer_private_data() const {
  return core().peer_private_data();
}

int Connection::post_send(std::span<const LocalSlice> from, std::uint64_t id,
                          SendFlags flags) const {
  return core().post_send(from, id, flags);
}

// Checks the bounds here, because the peer would end the connection for an access beyond its
// buffer.
int Connection::post_write(std::span<const LocalSlice> from, const RemoteBuffer& to,
                           std::uint64_t offset_bytes, std::uint64_t id, SendFlags flags) const {
  const auto part = detail::part_of(to, offset_bytes, from);
  return part ? core().post_write(from, *part, id, flags) : EMSGSIZE;
}

int Connection::post_read(std::span<const LocalSlice> into, const RemoteBuffer& from,
                          std::uint64_t offset_bytes, std::uint64_t id, SendFlags flags) const {
  const auto part = detail::part_of(from, offset_bytes, into);
  return part ? core().post_read(into, *part, id, flags) : EMSGSIZE;
}

int Connection::post_send(const KeptSlice& from, std::uint64_t id, SendFlags flags) const {
  return core().post_send(std::span(&from.slice(), 1), id, flags, nullptr, &from);
}

int Connection::post_write(const KeptSlice& from, const RemoteBuffer& to,
                           std::uint64_t offset_bytes, std::uint64_t id, SendFlags flags) const {
  const std::span piece(&from.slice(), 1);
  const auto part = detail::part_of(to, offset_bytes, piece);
  return part ? core().post_write(piece, *part, id, flags, nullptr, &from) : EMSGSIZE;
}

int Connection::post_read(const KeptSlice& into, const RemoteBuffer& from,
                          std::uint64_t offset_bytes, std::uint64_t id, SendFlags flags) const {
  const std::span piece(&into.slice(), 1);
  const auto part = detail::part_of(from, offset_bytes, piece);
  return part ? core().post_read(piece, *part, id, flags, nullptr, &into) : EMSGSIZE;
}

int Connection::post_send_with_immediate(const LocalSlice& from, std::uint32_t immediate,
                                         std::uint64_t id, SendFlags flags) const {
  return core().post_send_with_immediate(from, immediate, id, flags);
}

int Connection::post_write_with_immediate(const LocalSlice& from, const RemoteBuffer& to,
                                          std::uint64_t offset_bytes, std::uint32_t immediate,
                                          std::uint64_t id, SendFlags flags) const {
  const auto part = detail::part_of(to, offset_bytes, std::span(&from, 1));
  return part ? core().post_write_with_immediate(from, *part, immediate, id, flags) : EMSGSIZE;
}

int Connection::post_send_with_invalidate(const LocalSlice& from, std::uint32_t rkey,
                                          std::uint64_t id, SendFlags flags) const {
  return core().post_send_with_invalidate(from, rkey, id, flags);
}

// The length of `before` is that of the operand; other lengths are EMSGSIZE as well.
int Connection::post_fetch_and_add(const LocalSlice& before, const RemoteBuffer& target,
                                   std::uint64_t offset_bytes, std::uint64_t addend,
                                   std::uint64_t id, SendFlags flags) const {
  const auto part = operand_of(before, target, offset_bytes);
  return part ? core().post_fetch_and_add(before, *part, addend, id, flags) : EMSGSIZE;
}

int Connection::post_compare_and_swap(const LocalSlice& before, const RemoteBuffer& target,
                                      std::uint64_t offset_bytes, std::uint64_t expected,
                                      std::uint64_t desired, std::uint64_t id,
                                      SendFlags flags) const {
  const auto part = operand_of(before, target, offset_bytes);
  return part ? core().post_compare_and_swap(before, *part, expected, desired, id, flags)
              : EMSGSIZE;
}

int Connection::post_send_with_immediate(const KeptSlice& from, std::uint32_t immediate,
                                         std::uint64_t id, SendFlags flags) const {
  return core().post_send_with_immediate(from.slice(), immediate, id, flags, &from);
}

int Connection::post_write_with_immediate(const KeptSlice& from, const RemoteBuffer& to,
                                          std::uint64_t offset_bytes, std::uint32_t immediate,
                                          std::uint64_t id, SendFlags flags) const {
  const auto part = detail::part_of(to, offset_bytes, std::span(&from.slice(), 1));
  if (!part) return EMSGSIZE;
  return core().post_write_with_immediate(from.slice(), *part, immediate, id, flags, &from);
}

int Connection::post_send_with_invalidate(const KeptSlice& from, std::uint32_t rkey,
                                          std::uint64_t id, SendFlags flags) const {
  return core().post_send_with_invalidate(from.slice(), rkey, id, flags, &from);
}

int Connection::post_fetch_and_add(const KeptSlice& before, const RemoteBuffer& target,
                                   std::uint64_t offset_bytes, std::uint64_t addend,
                                   std::uint64_t id, SendFlags flags) const {
  const auto part = operand_of(before.slice(), target, offset_bytes);
  if (!part) return EMSGSIZE;
  return core().post_fetch_and_add(before.slice(), *part, addend, id, flags, &before);
}

int Connection::post_compare_and_swap(const KeptSlice& before, const RemoteBuffer& target,
                                      std::uint64_t offset_bytes, std::uint64_t expected,
                                      std::uint64_t desired, std::uint64_t id,
                                      SendFlags flags) const {
  const auto part = operand_of(before.slice(), target, offset_bytes);
  if (!part) return EMSGSIZE;
  return core().post_compare_and_swap(before.slice(), *part, expected, desired, id, flags, &before);
}

// Outcomes that were found are returned even after a timeout or a stop.
std::vector<Outcome> Connection::await(Queue queue, std::size_t count, Deadline deadline,
                                       std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  detail::OutcomesCondition outcomes(core(), queue, count);
  static_cast<void>(waiter.until(outcomes));
  return outcomes.take();
}

int Connection::fd(Queue queue) const {
  return core().side(queue).channel.fd();
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
  detail::AdvertisementCondition advertised(core());
  static_cast<void>(waiter.until(advertised));
  return advertised.take();
}

int Connection::advertisement_fd() const {
  return core().advertisement_fd();
}

void Connection::disconnect() {
  core().disconnect();
}

// True only if the end was found; a timeout and a stop return false.
bool Connection::await_disconnect(Deadline deadline, std::stop_token stop) {
  detail::Waiter waiter(deadline, std::move(stop));
  detail::EndCondition end(core());
  return waiter.until(end) == detail::Woken::ready;
}

int Connection::disconnect_fd() const {
  return core().end_fd();
}

}  // namespace weft::connection
