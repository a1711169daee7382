// Class Core: this file has set-up, connecting and the end; core_requests.cc has requests and
// advertisements.
#include "connection/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace weft::connection::detail {
namespace {

// Returns the context to create the queues in: that of the shared domain, if there is one. On the
// embedded device the id can use any context of its device. rdma-core accepts the context of
// rdma_cm only.
verbs::Context context_for(const verbs::Id& id, const Options& options) {
  verbs::Context own = id.context();
  if (!options.domain || options.domain->raw()->context == own.raw()) return own;
  verbs::Context other = options.domain->context();
  const std::string device = own.device_name();
  if (other.backend() != own.backend() || other.raw()->device != own.raw()->device) {
    throw Error(EINVAL,
                fmt::format("the shared protection domain belongs to the device {}, and the "
                            "connection uses {}: use a domain of that device",
                            other.device_name(), device),
                {.object = "connection", .attribute = "domain"});
  }
  if (own.backend() != verbs::Backend::embedded) {
    throw Error(EINVAL,
                fmt::format("the shared protection domain belongs to another context of {}: "
                            "connections use the context of rdma_cm; share the domain() of a "
                            "Prepared, a Request or another Connection",
                            device));
  }
  id.raw()->verbs = other.raw();
  return other;
}

}  // namespace

verbs::EventChannel channel_for(const Options& options) {
  return options.device ? verbs::EventChannel(*options.device)
                        : verbs::EventChannel(options.backend);
}

namespace {

verbs::ProtectionDomain domain_for(const verbs::Context& context, const Options& options) {
  return options.domain ? options.domain->share() : context.create_domain();
}

// Both completion queues have `queue_depth` entries as well, so that they cannot overflow.
ibv_qp_cap capacity(const Options& options) {
  return {.max_send_wr = options.queue_depth,
          .max_recv_wr = options.queue_depth,
          .max_send_sge = options.slices,
          .max_recv_sge = options.slices,
          .max_inline_data = options.inline_bytes};
}

// Atomic values have no time points, so the clock is kept as a number.
std::int64_t steady_ns() {
  return steady_now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Throws the error for a connection event other than RDMA_CM_EVENT_ESTABLISHED.
[[noreturn]] void fail_connecting(const verbs::ConnectionEvent& event, const std::string& peer,
                                  bool padded) {
  const auto peer_data =
      padded ? without_padding(event.private_data(), CarriedBy::rejection) : event.private_data();
  switch (event.type()) {
    case RDMA_CM_EVENT_REJECTED:
      throw Rejected(
          fmt::format("{} has rejected the connection, or no program listens there", peer),
          {peer_data.begin(), peer_data.end()}, {.object = "connection", .peer = peer});
    case RDMA_CM_EVENT_UNREACHABLE:
      throw Error(event.status() < 0 ? -event.status() : EHOSTUNREACH,
                  fmt::format("cannot reach {}: {}", peer, event.description()),
                  {.object = "connection", .peer = peer});
    default:
      throw Error(event.status() < 0 ? -event.status() : ECONNABORTED,
                  fmt::format("no connection with {}: {}", peer, event.description()),
                  {.object = "connection", .peer = peer});
  }
}

}  // namespace

Core::Core(verbs::EventChannel events, verbs::Id id, const Options& options)
    : events_(std::move(events)),
      id_(std::move(id)),
      context_(context_for(id_, options)),
      options_(options),
      domain_(domain_for(context_, options)),
      send_(make_side()),
      receive_(make_side()),
      queue_pair_(id_.create_queue_pair(domain_, send_.queue, receive_.queue, capacity(options))),
      requests_(options.queue_depth) {
  const auto attributes = context_.query();
  // Some iWARP adapters scatter read data to one slice only, so a read with more is split.
  read_slices_ = static_cast<std::size_t>(std::max(attributes.max_sge_rd, 1));
  read_slices_ = std::min<std::size_t>(read_slices_, options.slices);
  reads_need_write_access_ = context_.backend() == verbs::Backend::system &&
                             context_.raw()->device->transport_type == IBV_TRANSPORT_IWARP;
  if (options.advertisements) control_.emplace(domain_);
}

Core::~Core() {
  disconnect();
}

// Each queue has its own channel, so that waiters of sends and of receives do not consume each
// other's events.
Core::Side Core::make_side() {
  auto channel = context_.create_channel();
  auto queue = context_.create_completion_queue(static_cast<int>(options_.queue_depth),
                                                {.channel = &channel});
  return {std::move(channel), std::move(queue)};
}

// An iWARP adapter places read data by a tagged message, so the local buffer needs remote write
// access. Weft's own device needs local write access only.
Buffer Core::make_buffer(std::size_t bytes, std::span<std::byte> memory, Access access) {
  if (reads_need_write_access_) access = access | Access::remote_write;
  return memory.empty() ? domain_.allocate<std::byte>(bytes, access)
                        : domain_.register_memory(memory, access);
}

// --- Connecting ----------------------------------------------------------------------------------

// InfiniBand's messages have a fixed size: the receiver gets all of it, and cannot know how much
// the sender has written.
bool Core::pads_private_data() const {
  return context_.backend() == verbs::Backend::system &&
         context_.raw()->device->transport_type == IBV_TRANSPORT_IB;
}

std::vector<std::byte> Core::wrap(const Greeting& greeting, CarriedBy message) {
  Options agreed = options_;
  agreed.advertisements = control_.has_value();
  const std::size_t most = max_private_data_bytes(agreed, greeting.buffer.has_value());
  if (greeting.private_data.size() > most) {
    throw Error(EINVAL,
                fmt::format("private data may have {} bytes here, not {}", most,
                            greeting.private_data.size()),
                {.object = "connection",
                 .attribute = "private_data",
                 .requested = greeting.private_data.size(),
                 .limit = most});
  }
  std::vector<std::byte> user(greeting.private_data.begin(), greeting.private_data.end());
  if (control_) {
    return ControlGreeting{Control::ring_slots, control_->region(), greeting.buffer, user}
        .to_bytes();
  }
  if (greeting.buffer) {
    throw Error(EOPNOTSUPP, "cannot advertise a buffer: the peer has not agreed to advertisements");
  }
  return pads_private_data() ? with_length(user, message) : user;
}

// A peer without the control greeting uses plain rdma_cm: all of its private data belongs to the
// user.
void Core::unwrap(std::span<const std::byte> private_data, CarriedBy message) {
  const auto greeting = ControlGreeting::parse(private_data);
  if (!greeting) {
    const auto user = pads_private_data() ? without_padding(private_data, message) : private_data;
    peer_private_data_.assign(user.begin(), user.end());
    control_.reset();
    return;
  }
  peer_private_data_ = greeting->private_data;
  // A peer that offers advertisements gets them, whatever this side's options are.
  if (!control_) control_.emplace(domain_);
  control_->set_peer(greeting->control, greeting->slots);
  if (greeting->buffer) initial_advertisement_ = Advertisement{*greeting->buffer, 0};
}

// The same depth in both directions: rdma_cm reduces each to what both sides support.
verbs::ConnectionParameters Core::parameters(std::span<const std::byte> bytes) const {
  verbs::ConnectionParameters parameters;
  parameters.private_data = bytes;
  parameters.responder_resources = parameters.initiator_depth = options_.read_depth;
  return parameters;
}

void Core::begin_connecting(const Greeting& greeting) {
  const auto bytes = wrap(greeting, CarriedBy::request);
  id_.connect(parameters(bytes));
  active_ = true;
}

void Core::begin_accepting(const Greeting& greeting) {
  const auto bytes = wrap(greeting, CarriedBy::acceptance);
  id_.accept(parameters(bytes));
}

// Only the active side gets private data with this event; the passive side has it since the
// request.
bool Core::poll_connected() {
  const auto event = events_.next(Deadline::now());
  if (!event) return false;
  if (event->type() != RDMA_CM_EVENT_ESTABLISHED)
    fail_connecting(*event, id_.peer_address(), pads_private_data());
  if (active_) unwrap(event->private_data(), CarriedBy::acceptance);
  connected_ = true;
  return true;
}

void Core::reject(std::span<const std::byte> private_data) {
  if (!pads_private_data()) return id_.reject(private_data);
  id_.reject(with_length(private_data, CarriedBy::rejection));
}

// --- The end -------------------------------------------------------------------------------------

// Reads all pending events, because any of the waiters may be the one that reads the disconnect
// event; the flag makes it visible to the others.
bool Core::has_ended() {
  while (const auto event = events_.next(Deadline::now())) {
    const bool over = event->type() == RDMA_CM_EVENT_DISCONNECTED ||
                      event->type() == RDMA_CM_EVENT_DEVICE_REMOVAL;
    // Every other event after the connection is established has no consequence here.
    if (over) note_end();
  }
  return end_.flag.raised();
}

// rdma_disconnect(3) is the answer that the peer waits for on InfiniBand and RoCE; there it is also
// what makes the device flush the requests of this side, some time later.
void Core::note_end() {
  if (end_.flag.raised()) return;
  constexpr std::chrono::seconds flush_time{1};
  disconnect();
  try {
    end_.flush_timer.set(flush_time);
    end_.flush_until_ns = steady_ns() + std::chrono::nanoseconds(flush_time).count();
  } catch (const Error&) {
    // No descriptor is left: waiters get what is flushed by now.
  }
  end_.flag.raise();
}

bool Core::awaits_flush(Queue queue) {
  if (steady_ns() >= end_.flush_until_ns) return false;
  if (queue == Queue::receive) return end_.receives_under_way > 0;
  const std::lock_guard lock(posting_);
  return requests_.awaits_completion();
}

int Core::end_fd() {
  const std::lock_guard lock(end_.mutex);
  if (!end_.set) {
    end_.set.emplace();
    end_.set->add(events_.fd());
    end_.set->add(end_.flag.fd());
  }
  return end_.set->fd();
}

// Only an established connection is disconnected, and only once; ending an attempt is the
// destructor's work.
void Core::disconnect() {
  // Several threads may find the end at once.
  if (!connected_ || end_.disconnected.exchange(true)) return;
  try {
    id_.disconnect();
  } catch (const Error&) {
    // The peer has disconnected first; its event ends the connection as well.
  }
}

}  // namespace weft::connection::detail
