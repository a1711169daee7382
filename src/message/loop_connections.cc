// Events of a loop: completion queues, connections, and requests to connect.
#include <algorithm>
#include <utility>

#include "message/link.h"
#include "message/loop_core.h"
#include "provider/shared.h"

namespace weft::message::detail {
namespace {

// Events of one source that are handled before other sources have their turn.
constexpr std::size_t batch = 64;

}  // namespace

// --- Events --------------------------------------------------------------------------------------

// A completion event makes its connection poll; one event stands for any number of completions.
// All events are taken, at most one of each connection: the connections that are polled have a turn
// of their own after each call, and would be served again while the rest of the events waits.
std::size_t LoopCore::take_completion_events(const Device& device) {
  std::size_t done = 0;
  while (done < std::max(batch, links_.size())) {
    const auto context = device.channel.wait(Deadline::now());
    if (!context) break;
    ++done;
    // The context is a number and no pointer, because the connection may be destroyed already.
    const auto found = links_.find(reinterpret_cast<std::uintptr_t>(*context));
    if (found != links_.end()) found->second->on_completion_event();
  }
  return done;
}

std::size_t LoopCore::take_connection_events() {
  std::size_t done = 0;
  while (done < batch && !shut_down_) {
    auto event = events_.next(Deadline::now());
    if (!event) break;
    ++done;
    if (event->type() == RDMA_CM_EVENT_CONNECT_REQUEST) {
      handle_request(std::move(*event));
    } else {
      handle(std::move(*event));
    }
  }
  return done;
}

// Passes an event to its connection. Events of ids that are not known any more are dropped.
void LoopCore::handle(verbs::ConnectionEvent event) {
  const auto number = by_id_.find(event.id());
  const auto found = number == by_id_.end() ? links_.end() : links_.find(number->second);
  if (found == links_.end()) return;
  // A reference of its own: the handler may remove the link from the table.
  const auto link = found->second;
  const auto private_data = event.private_data();
  const Link::Event copy{event.type(),
                         event.status(),
                         std::string(event.description()),
                         {private_data.begin(), private_data.end()}};
  // Acknowledge it first: the connection may destroy the id, which would wait for that.
  { const verbs::ConnectionEvent acknowledged = std::move(event); }
  link->on_event(copy);
}

void LoopCore::remove(std::uint64_t number) {
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  polled_.remove(found->second);
  links_.erase(found);
}

std::uint64_t LoopCore::add(std::shared_ptr<Link> link) {
  links_.emplace(++last_number_, std::move(link));
  return last_number_;
}

void LoopCore::set_id(const verbs::Id& id, std::uint64_t number) {
  by_id_[id.raw()] = number;
}

// Connections of one device share its protection domain, completion channel and memory.
std::shared_ptr<Device> LoopCore::device_for(verbs::Context context) {
  for (const auto& device : devices_) {
    if (device->context.raw() == context.raw()) return device;
  }
  auto domain = context.create_domain();
  auto channel = context.create_channel();
  // On iWARP the sink of an RDMA Read is a buffer that the peer writes to (RFC 5040 §5.2), so
  // adapters demand that access.
  const bool sink_is_remote = context.backend() == verbs::Backend::system &&
                              context.raw()->device->transport_type == IBV_TRANSPORT_IWARP;
  // A block holds the largest frame that a peer may send eagerly.
  const std::size_t block =
      std::max<std::size_t>(Frame::payload_offset + limits_.eager_bytes, Frame::largest_bytes);
  auto pool =
      std::make_shared<Pool>(domain.share(), block, limits_.pool_bytes,
                             sink_is_remote ? verbs::Access::remote_write : verbs::Access::local,
                             [loop = weak_from_this()] {
                               const auto alive = loop.lock();
                               if (!alive) return;
                               alive->memory_wait_.released = true;
                               alive->signal_.raise();
                             });
  watch(channel.fd());
  const bool embedded = context.backend() == verbs::Backend::embedded;
  devices_.push_back(std::make_shared<Device>(
      Device{.context = std::move(context),
             .domain = std::move(domain),
             .channel = std::move(channel),
             .pool = std::move(pool),
             .warm = {},
             .poll_into = embedded ? provider::shared_embedded().poll_cq_into : nullptr}));
  return devices_.back();
}

Terms LoopCore::terms() const {
  return {limits_.credits, limits_.eager_bytes, limits_.max_message_bytes, true};
}

// --- Connecting ----------------------------------------------------------------------------------

std::shared_ptr<Link> LoopCore::connect(const Address& peer, Handlers handlers,
                                        const Options& options) {
  auto link = std::make_shared<Link>(*this, std::move(handlers), options);
  link->start(peer);
  return link;
}

std::uint64_t LoopCore::listen(const Address& address, RequestHandler on_request, int backlog,
                               std::uint16_t& port) {
  verbs::Id id(events_);
  id.bind(address);
  id.listen(backlog);
  port = id.local_port();
  const std::uint64_t number = ++last_number_;
  by_id_[id.raw()] = number;
  listeners_.emplace(
      number, std::make_shared<ListenerState>(ListenerState{std::move(id), std::move(on_request),
                                                            std::make_shared<ListenerCounts>()}));
  return number;
}

// A handler of the listener may call this; handle_request() keeps the state until it returns.
void LoopCore::close_listener(std::uint64_t number) {
  const auto found = listeners_.find(number);
  if (found == listeners_.end()) return;
  const auto listener = found->second;
  by_id_.erase(listener->id.raw());
  listeners_.erase(found);
}

std::shared_ptr<ListenerCounts> LoopCore::counts(std::uint64_t listener) const {
  const auto found = listeners_.find(listener);
  return found == listeners_.end() ? nullptr : found->second->counts;
}

// Rejects what the application is not to see, and passes the rest to the listener's handler.
void LoopCore::handle_request(verbs::ConnectionEvent event) {
  const auto number = by_id_.find(event.raw()->listen_id);
  if (number == by_id_.end()) return;
  const auto known = listeners_.find(number->second);
  if (known == listeners_.end()) return;
  const auto listener = known->second;  // on_request may close it
  auto read = MessageGreeting::parse(event.private_data());
  const auto id = std::make_shared<verbs::Id>(event.take_request());
  { const verbs::ConnectionEvent acknowledged = std::move(event); }
  Rejection rejection;
  rejection.reason = read.reason;
  if (rejection.reason == Reason::none && !listener->on_request) {
    rejection.reason = Reason::no_handler;
  }
  // Checked here and not when the request is accepted, so that the peer learns of the limit at
  // once.
  if (rejection.reason == Reason::none &&
      listener->counts->connections >= limits_.max_connections) {
    rejection.reason = Reason::too_many;
    rejection.limit = limits_.max_connections;
  }
  if (rejection.reason != Reason::none) {
    ++listener->counts->turned_away;
    reject_quietly(*id, rejection);
    return;
  }
  auto pending = std::make_unique<PendingRequest>(
      PendingRequest{weak_from_this(), std::move(*id), std::move(*read.greeting),
                     CountedConnection(listener->counts)});
  listener->on_request(Request(std::move(pending)));
}

}  // namespace weft::message::detail
