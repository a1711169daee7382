#include "stream/connector.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/own_options.h"
#include "provider/shared.h"

namespace weft::stream::detail {
namespace {

// Timeout of each step of rdma_cm. The deadline of a connection is that of the call that waits for
// it; this only ends attempts that no call waits for any more.
constexpr std::chrono::seconds step_timeout{60};

// ECONNREFUSED where another attempt may succeed, EPROTONOSUPPORT where the two sides do not fit.
int errno_of(Reason reason) {
  return reason == Reason::by_user || reason == Reason::unable ? ECONNREFUSED : EPROTONOSUPPORT;
}

}  // namespace

// A rejection has a type of its own, because the peer's program may have given its reason as
// private data.
void ConnectFailure::raise() const {
  // Given up in a child of fork(2), which allocates nothing for it.
  if (!report) {
    throw Error(error, "the stream belongs to the process that has forked this one", {});
  }
  if (rejected) throw Rejected(error, report->text, report->private_data, report->detail);
  throw Error(error, report->text, report->detail);
}

// --- Starting ------------------------------------------------------------------------------------

void Connector::set_device(const verbs::Context* device) {
  if (!device) return;
  if (id_) throw Error(EISCONN, "the stream is bound to a device already");
  device_.emplace(device->share());
}

verbs::EventChannel Connector::make_channel() const {
  return device_ ? verbs::EventChannel(*device_) : verbs::EventChannel(options_.backend);
}

void Connector::bind(const Address& local) {
  // As bind(2): a second call is EINVAL.
  if (phase_ != Phase::idle || id_) throw Error(EINVAL, "the stream is bound already");
  verbs::EventChannel events = make_channel();
  verbs::Id id(events);
  id.bind(local);
  events_.emplace(std::move(events));
  id_.emplace(std::move(id));
}

void Connector::register_handler(std::weak_ptr<IoHandler> handler) {
  thread_.enter(std::move(handler));
  StreamThread::serve_device();
}

// The thread may call the handler as soon as this returns; the stream's lock keeps it waiting until
// the caller is done.
void Connector::watch_events() {
  thread_.watch(events_->fd());
}

void Connector::register_again(std::weak_ptr<IoHandler> handler) {
  thread_.enter(std::move(handler));
  watch_events();
  if (channel_.has_transport()) thread_.watch(channel_.transport().channel().fd());
}

void Connector::start(const Address& peer, std::span<const std::byte> private_data,
                      std::weak_ptr<IoHandler> handler) {
  if (phase_ != Phase::idle) {
    // As connect(2).
    throw Error(is_connecting() ? EALREADY : EISCONN, "the stream is connected already");
  }
  // The channel and the id exist already if bind() was called, or if an earlier call has thrown.
  if (!id_) {
    verbs::EventChannel events = make_channel();
    id_.emplace(events);
    events_.emplace(std::move(events));
  }
  lookup_ = std::make_unique<verbs::detail::HostLookup>(options_.backend, peer);
  const bool at_once = lookup_->takes_no_time();
  if (at_once) {
    id_->resolve_address(lookup_->take(), step_timeout);
    lookup_.reset();
  }
  private_data_.assign(private_data.begin(), private_data.end());
  phase_ = Phase::resolving;
  register_handler(std::move(handler));
  if (!at_once) thread_.watch(lookup_->fd());
}

// The descriptor stays readable, so it must not be watched any more.
void Connector::finish_lookup() {
  thread_.unwatch(lookup_->fd());
  const auto lookup = std::move(lookup_);
  if (phase_ == Phase::resolving) id_->resolve_address(lookup->take(), step_timeout);
}

void Connector::accept(PendingRequest& request, std::span<const std::byte> private_data,
                       std::weak_ptr<IoHandler> handler) {
  if (device_ && device_->raw()->device != request.id.context().raw()->device) {
    throw Error(EINVAL,
                fmt::format("the request has come to the device {}, and the options name {}: "
                            "accept it with the device of its listener",
                            request.id.context().device_name(), device_->device_name()));
  }
  verbs::EventChannel events = request.id.new_channel();
  // The id leaves the listener's channel, so that its events come to this stream.
  request.id.migrate(events);
  id_.emplace(std::move(request.id));
  // From here on the destructor of Request must not reject it.
  request.answered = true;
  events_.emplace(std::move(events));
  register_handler(std::move(handler));
  watch_events();
  try {
    answer(request.greeting, private_data);
  } catch (...) {
    // Reject the request, so that the peer does not wait for its timeout. If the peer has given up,
    // it cannot be rejected, which is not the reason of the failure.
    try {
      id_->reject(StreamGreeting::refusal(Reason::unable).to_bytes());
    } catch (const Error&) {
    }
    throw;
  }
}

// Accepts the request. The accepting side chooses the variant, and prefers immediates.
void Connector::answer(const StreamGreeting& peer, std::span<const std::byte> private_data) {
  open_transport();
  const std::uint8_t common = channel_.transport().variants() & peer.variants;
  const std::uint8_t variant = common & variant_immediate ? variant_immediate : common;
  if (variant == 0) throw Error(EPROTONOSUPPORT, to_string(Reason::no_variant));
  // An acceptance names exactly one variant: that is the agreement.
  StreamGreeting ours = channel_.transport().greeting(GreetingType::acceptance);
  ours.variants = variant;
  // A peer of an older version does not grow its rings, so neither side does.
  if (peer.part_log2 == 0) ours.part_log2 = 0;
  ours.shares_memory = peer.shares_memory && channel_.transport().offer_memory(options_.bell);
  ours.private_data.assign(private_data.begin(), private_data.end());
  const auto bytes = ours.to_bytes();
  // Before the acceptance is sent: messages of the peer may arrive before our ESTABLISHED event.
  open_flow(peer, variant);
  phase_ = Phase::connecting;
  id_->accept({.private_data = bytes});
}

void Connector::open_transport() {
  channel_.open_transport(*id_, options_);
  thread_.watch(channel_.transport().channel().fd());
}

void Connector::open_flow(StreamGreeting peer, std::uint8_t variant) {
  peer_ = std::move(peer);
  channel_.open_flow(peer_, variant);
}

// --- Events --------------------------------------------------------------------------------------

std::optional<verbs::ConnectionEvent> Connector::next_event() {
  if (!events_) return std::nullopt;
  return events_->next(Deadline::now());
}

// The active side gets ADDR_RESOLVED, ROUTE_RESOLVED, and ESTABLISHED or REJECTED; the passive side
// gets ESTABLISHED only.
void Connector::handle(const verbs::ConnectionEvent& event) {
  switch (event.type()) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      id_->resolve_route(step_timeout);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      request_connection();
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      established(event);
      return;
    case RDMA_CM_EVENT_REJECTED:
      rejected(event);
      return;
    default:
      // All other events mean failure, but may also follow the end of an established connection.
      if (!is_connecting()) return;
      fail(event.status() < 0 ? -event.status() : EHOSTUNREACH,
           fmt::format("cannot connect to {}: {}", id_->peer_address(), event.description()));
  }
}

// Creates the queue pair, whose receives are posted before the peer knows of it, and sends the
// request with our greeting.
void Connector::request_connection() {
  open_transport();
  StreamGreeting ours = channel_.transport().greeting(GreetingType::request);
  ours.shares_memory = channel_.transport().offer_memory(options_.bell);
  ours.private_data = private_data_;
  const auto bytes = ours.to_bytes();
  phase_ = Phase::connecting;
  set_limits();
  id_->connect({.private_data = bytes});
}

// Other devices, and those of older versions, refuse the options and have limits of their own.
void Connector::set_limits() const {
  if (options_.backend != verbs::Backend::embedded) return;
  const auto set = [this](int option, std::optional<std::chrono::nanoseconds> time) {
    if (!time) return;
    auto time_ns = static_cast<std::uint64_t>(time->count());
    (void)provider::shared_embedded().set_option(id_->raw(), RDMA_OPTION_ID, option, &time_ns,
                                                 sizeof time_ns);
  };
  set(reply_timeout_option, options_.answer_timeout);
  set(refused_time_option, options_.refused_time);
}

// The active side reads the acceptance here; the passive side has opened its flow in answer().
void Connector::established(const verbs::ConnectionEvent& event) {
  if (!channel_.is_open()) {
    auto parsed = StreamGreeting::parse(event.private_data());
    auto* peer = std::get_if<StreamGreeting>(&parsed);
    if (!peer || peer->type != GreetingType::acceptance ||
        (peer->variants & channel_.transport().variants()) == 0) {
      disconnect();
      fail(EPROTO, id_->peer_address() + " accepted the connection, but not as a stream");
      return;
    }
    const std::uint8_t variant = peer->variants;
    open_flow(std::move(*peer), variant);
  }
  phase_ = Phase::open;
}

// The connecting side opens its flow when it is established.
bool Connector::note_arrival() {
  if (phase_ != Phase::connecting || !channel_.is_open()) return false;
  phase_ = Phase::open;
  return true;
}

// A peer of this protocol rejects with a greeting that has the reason and its private data.
void Connector::rejected(const verbs::ConnectionEvent& event) {
  auto parsed = StreamGreeting::parse(event.private_data());
  auto* peer = std::get_if<StreamGreeting>(&parsed);
  failure_.rejected = true;
  failure_.report = std::make_unique<ConnectFailure::Report>();
  if (peer && peer->type == GreetingType::refusal) {
    failure_.report->private_data = std::move(peer->private_data);
    fail(errno_of(peer->reason()),
         fmt::format("{} refuses the stream: {}", id_->peer_address(), to_string(peer->reason())));
    return;
  }
  // A program that listens for something else: it closes when it reads an MPA request.
  if (event.status() == -ECONNRESET) {
    return fail(ECONNRESET,
                fmt::format("{} has closed the connection: its program does not speak streams",
                            id_->peer_address()));
  }
  // The transport itself rejects where no program listens; it sends no greeting.
  fail(ECONNREFUSED, fmt::format("{} refuses the connection: no program listens there for streams",
                                 id_->peer_address()));
}

// --- The end -------------------------------------------------------------------------------------

void Connector::fail(int error, const std::string& text, ErrorDetail detail) {
  if (!is_connecting()) return;
  if (detail.object.empty()) {
    detail.object = "stream";
    if (id_) detail.peer = id_->peer_address();
  }
  phase_ = Phase::over;
  failure_.error = error;
  if (!failure_.report) failure_.report = std::make_unique<ConnectFailure::Report>();
  failure_.report->text = text;
  failure_.report->detail = std::move(detail);
}

// It is no rejection, and has no text that would have to be allocated.
void Connector::give_up_in_child() noexcept {
  phase_ = Phase::over;
  failure_.error = ENODEV;
}

// An identifier that was never connected has nothing to disconnect; its destruction ends the
// attempt.
void Connector::disconnect() {
  if (!id_ || disconnected_ || phase_ == Phase::idle || phase_ == Phase::resolving) return;
  disconnected_ = true;
  try {
    id_->disconnect();
  } catch (const Error&) {
    // The peer has disconnected first, or the connection is not established yet.
  }
}

}  // namespace weft::stream::detail
