#include "connection/core.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::connection::detail {
namespace {

verbs::ProtectionDomain domain_for(const verbs::Context& context, const Options& options) {
  if (!options.domain) return context.create_domain();
  if (options.domain->raw()->context != context.raw()) {
    throw Error(EINVAL, "the shared protection domain belongs to another device");
  }
  return options.domain->share();
}

ibv_qp_cap capacity(const Options& options) {
  return {.max_send_wr = options.queue_depth,
          .max_recv_wr = options.queue_depth,
          .max_send_sge = options.slices,
          .max_recv_sge = options.slices,
          .max_inline_data = options.inline_bytes};
}

[[noreturn]] void fail_connecting(const verbs::ConnectionEvent& event, const std::string& peer) {
  const auto said = event.private_data();
  switch (event.type()) {
    case RDMA_CM_EVENT_REJECTED:
      throw Rejected(fmt::format("{} has rejected the connection", peer),
                     {said.begin(), said.end()});
    case RDMA_CM_EVENT_UNREACHABLE:
      throw Error(event.status() < 0 ? -event.status() : EHOSTUNREACH,
                  fmt::format("cannot reach {}", peer));
    default:
      throw Error(event.status() < 0 ? -event.status() : ECONNABORTED,
                  fmt::format("no connection with {}: {}", peer, event.name()));
  }
}

}  // namespace

Core::Core(verbs::EventChannel events, verbs::Id id, const Options& options)
    : events_(std::move(events)),
      id_(std::move(id)),
      context_(id_.context()),
      options_(options),
      domain_(domain_for(context_, options)),
      send_(make_side()),
      receive_(make_side()),
      queue_pair_(id_.create_queue_pair(domain_, send_.queue, receive_.queue, capacity(options))),
      requests_(options.queue_depth) {
  const auto attributes = context_.query();
  read_slices_ = static_cast<std::size_t>(std::max(attributes.max_sge_rd, 1));
  read_slices_ = std::min<std::size_t>(read_slices_, options.slices);
  reads_need_write_access_ = context_.backend() == verbs::Backend::system &&
                             context_.raw()->device->transport_type == IBV_TRANSPORT_IWARP;
  if (options.advertisements) control_.emplace(domain_);
}

Core::~Core() {
  disconnect();
}

Core::Side Core::make_side() {
  auto channel = context_.create_channel();
  auto queue = context_.create_completion_queue(static_cast<int>(options_.queue_depth),
                                                {.channel = &channel});
  return {std::move(channel), std::move(queue)};
}

Buffer Core::make_buffer(std::size_t bytes, std::span<std::byte> memory, Access access) {
  if (reads_need_write_access_) access = access | Access::remote_write;
  return memory.empty() ? domain_.allocate<std::byte>(bytes, access)
                        : domain_.register_memory(memory, access);
}

// --- Connecting ----------------------------------------------------------------------------------

std::vector<std::byte> Core::wrap(const Greeting& greeting) {
  Options agreed = options_;
  agreed.advertisements = control_.has_value();
  const std::size_t most = max_private_data_bytes(agreed, greeting.buffer.has_value());
  if (greeting.private_data.size() > most) {
    throw Error(EINVAL, fmt::format("private data may have {} bytes here, and not {}", most,
                                    greeting.private_data.size()));
  }
  std::vector<std::byte> user(greeting.private_data.begin(), greeting.private_data.end());
  if (control_) {
    return ControlGreeting{Control::ring_slots, control_->region(), greeting.buffer, user}
        .to_bytes();
  }
  if (greeting.buffer) {
    throw Error(EOPNOTSUPP,
                "cannot advertise a buffer: the other side has not agreed to advertisements");
  }
  return user;
}

void Core::unwrap(std::span<const std::byte> private_data) {
  const auto greeting = ControlGreeting::parse(private_data);
  if (!greeting) {
    peer_private_data_.assign(private_data.begin(), private_data.end());
    control_.reset();
    return;
  }
  peer_private_data_ = greeting->private_data;
  if (!control_) control_.emplace(domain_);
  control_->set_peer(greeting->control, greeting->slots);
  if (greeting->buffer) greeted_ = Advertisement{*greeting->buffer, 0};
}

verbs::ConnectionParameters Core::parameters(std::span<const std::byte> bytes) const {
  verbs::ConnectionParameters wanted;
  wanted.private_data = bytes;
  wanted.responder_resources = wanted.initiator_depth = options_.read_depth;
  return wanted;
}

void Core::begin_connecting(const Greeting& greeting) {
  const auto bytes = wrap(greeting);
  id_.connect(parameters(bytes));
  active_ = true;
}

void Core::begin_accepting(const Greeting& greeting) {
  const auto bytes = wrap(greeting);
  id_.accept(parameters(bytes));
}

bool Core::look_for_connection() {
  const auto event = events_.next(Deadline::now());
  if (!event) return false;
  if (event->type() != RDMA_CM_EVENT_ESTABLISHED) fail_connecting(*event, id_.peer_address());
  if (active_) unwrap(event->private_data());
  connected_ = true;
  return true;
}

void Core::reject(std::span<const std::byte> private_data) {
  id_.reject(private_data);
}

// --- The end -------------------------------------------------------------------------------------

bool Core::has_ended() {
  while (const auto event = events_.next(Deadline::now())) {
    const bool over = event->type() == RDMA_CM_EVENT_DISCONNECTED ||
                      event->type() == RDMA_CM_EVENT_DEVICE_REMOVAL;
    if (over) ended_.raise();
  }
  return ended_.raised();
}

int Core::end_fd() {
  const std::lock_guard lock(ending_);
  if (!end_set_) {
    end_set_.emplace();
    end_set_->add(events_.fd());
    end_set_->add(ended_.fd());
  }
  return end_set_->fd();
}

void Core::disconnect() {
  if (!connected_ || disconnected_.exchange(true)) return;
  try {
    id_.disconnect();
  } catch (const Error&) {
    // The peer was first.
  }
}

}  // namespace weft::connection::detail
