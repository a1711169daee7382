// How a stream comes about: rdma_cm's events, one after the other, looked at by the pump.
#include <fmt/format.h>

#include <algorithm>

#include "stream/endpoint.h"

namespace weft::stream::detail {
namespace {

// Calls have deadlines of their own; this only ends what nobody waits for any more.
constexpr std::chrono::seconds long_enough{60};

int errno_of(Reason reason) {
  return reason == Reason::by_user || reason == Reason::unable ? ECONNREFUSED : EPROTONOSUPPORT;
}

}  // namespace

Endpoint::Endpoint(const Options& options) : options_(options) {
  check(options);
}

void Endpoint::set_options(const Options& options) {
  check(options);
  const Lock lock(mutex_);
  Options changed = options_;
  changed.spin = options.spin;
  changed.linger = options.linger;
  changed.keepalive = options.keepalive;
  if (phase_ == Phase::idle) {
    changed = options;
  } else if (changed.send_buffer_bytes != options.send_buffer_bytes ||
             changed.receive_buffer_bytes != options.receive_buffer_bytes ||
             changed.send_queue != options.send_queue ||
             changed.receive_queue != options.receive_queue || changed.variant != options.variant ||
             changed.mapped_buffers != options.mapped_buffers ||
             changed.backend != options.backend) {
    throw Error(EISCONN, "sizes and variant of a stream are settled once it is connected");
  }
  options_ = changed;
  if (phase_ == Phase::open) look_for_life();
}

Options Endpoint::options() {
  const Lock lock(mutex_);
  return options_;
}

void Endpoint::bind(const Address& local) {
  const Lock lock(mutex_);
  if (phase_ != Phase::idle || id_) throw Error(EINVAL, "the stream is bound already");
  verbs::EventChannel events(options_.backend);
  verbs::Id id(events);
  id.bind(local);
  events_.emplace(std::move(events));
  id_.emplace(std::move(id));
}

void Endpoint::enter_pump(verbs::EventChannel events) {
  events_.emplace(std::move(events));
  pump_ = &Pump::instance();
  token_ = pump_->add(weak_from_this());
  pump_->watch(token_, events_->fd());
}

void Endpoint::leave_pump() {
  if (!pump_) return;
  if (wire_) {
    pump_->remove(token_, {events_->fd(), wire_->channel().fd()});
  } else {
    pump_->remove(token_, {events_->fd()});
  }
  pump_ = nullptr;
}

void Endpoint::start(const Address& peer, std::span<const std::byte> private_data) {
  const std::size_t most = max_private_data_bytes(options().backend);
  if (private_data.size() > most) {
    throw Error(EINVAL, fmt::format("private data may have {} bytes, and not {}", most,
                                    private_data.size()));
  }
  const Lock lock(mutex_);
  if (phase_ != Phase::idle) {
    throw Error(is_connecting() ? EALREADY : EISCONN, "the stream is connected already");
  }
  verbs::EventChannel events =
      events_ ? std::move(*events_) : verbs::EventChannel(options_.backend);
  if (!id_) id_.emplace(events);
  id_->resolve_address(peer, long_enough);
  private_data_.assign(private_data.begin(), private_data.end());
  phase_ = Phase::resolving;
  enter_pump(std::move(events));
}

void Endpoint::accept(Asked& asked, std::span<const std::byte> private_data) {
  const Lock lock(mutex_);
  verbs::EventChannel events(options_.backend);
  asked.id.migrate(events);
  id_.emplace(std::move(asked.id));
  asked.answered = true;
  enter_pump(std::move(events));
  try {
    answer(asked.greeting, private_data);
  } catch (...) {
    id_->reject(StreamGreeting::refusal(Reason::unable).to_bytes());
    throw;
  }
}

void Endpoint::answer(const StreamGreeting& peer, std::span<const std::byte> private_data) {
  open_wire();
  const std::uint8_t common = wire_->variants() & peer.variants;
  const std::uint8_t variant = common & variant_immediate ? variant_immediate : common;
  if (variant == 0) throw Error(EPROTONOSUPPORT, to_string(Reason::no_variant));
  StreamGreeting ours = wire_->greeting(GreetingType::acceptance);
  ours.variants = variant;
  ours.private_data.assign(private_data.begin(), private_data.end());
  const auto bytes = ours.to_bytes();
  open_flow(peer, variant);
  phase_ = Phase::connecting;
  id_->accept({.private_data = bytes});
}

void Endpoint::open_wire() {
  wire_.emplace(*id_, options_);
  pump_->watch(token_, wire_->channel().fd());
  theirs_.resize(options_.mapped_buffers);
}

void Endpoint::open_flow(StreamGreeting peer, std::uint8_t variant) {
  peer_ = std::move(peer);
  flow_.emplace(wire_->connect(peer_, variant));
  ours_.resize(peer_.rows);
  heard_ = Clock::now();
}

// --- Events --------------------------------------------------------------------------------------

void Endpoint::look_at_connection() {
  if (!events_) return;
  while (const auto event = events_->next(Deadline::now())) {
    try {
      handle(*event);
    } catch (const Error& error) {
      fail_connecting(error.error_number(), error.what());
    }
    changed_.notify_all();
  }
}

void Endpoint::handle(const verbs::ConnectionEvent& event) {
  switch (event.type()) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      id_->resolve_route(long_enough);
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: {
      open_wire();
      StreamGreeting ours = wire_->greeting(GreetingType::request);
      ours.private_data = private_data_;
      const auto bytes = ours.to_bytes();
      phase_ = Phase::connecting;
      id_->connect({.private_data = bytes});
      return;
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      established(event);
      return;
    case RDMA_CM_EVENT_REJECTED:
      rejected(event);
      return;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      process();  // what came before is here
      if (is_connecting()) fail_connecting(ECONNRESET, "the peer has left");
      break_off(ECONNRESET);
      return;
    default:
      if (!is_connecting()) return;
      fail_connecting(event.status() < 0 ? -event.status() : EHOSTUNREACH,
                      fmt::format("cannot connect to {}: {}", id_->peer_address(), event.name()));
  }
}

void Endpoint::established(const verbs::ConnectionEvent& event) {
  if (!flow_) {
    auto parsed = StreamGreeting::parse(event.private_data());
    auto* peer = std::get_if<StreamGreeting>(&parsed);
    if (!peer || peer->type != GreetingType::acceptance ||
        (peer->variants & wire_->variants()) == 0) {
      disconnect();
      fail_connecting(EPROTO, id_->peer_address() + " accepts, but not as a stream");
      return;
    }
    const std::uint8_t variant = peer->variants;
    open_flow(std::move(*peer), variant);
  }
  phase_ = Phase::open;
  look_for_life();
}

void Endpoint::rejected(const verbs::ConnectionEvent& event) {
  auto parsed = StreamGreeting::parse(event.private_data());
  auto* peer = std::get_if<StreamGreeting>(&parsed);
  refused_ = true;
  if (peer && peer->type == GreetingType::refusal) {
    refusal_ = std::move(peer->private_data);
    fail_connecting(
        errno_of(peer->reason()),
        fmt::format("{} refuses the stream: {}", id_->peer_address(), to_string(peer->reason())));
    return;
  }
  fail_connecting(ECONNREFUSED,
                  fmt::format("{} refuses the connection: nobody listens there, or not for streams",
                              id_->peer_address()));
}

void Endpoint::fail_connecting(int error, const std::string& what) {
  if (!is_connecting()) return;
  phase_ = Phase::over;
  failure_ = error;
  failure_text_ = what;
}

// --- Asking --------------------------------------------------------------------------------------

bool Endpoint::await_connected(const Deadline& deadline) {
  Lock lock(mutex_);
  const bool known = wait(lock, deadline, [this] { return closed_ || !is_connecting(); });
  if (!known) return false;
  settled_told_ = true;
  leave();
  if (closed_) throw Error(ECANCELED, "the stream was closed");
  if (phase_ == Phase::idle) throw Error(ENOTCONN, "the stream was never told to connect");
  if (failure_ == 0) return true;
  if (refused_) throw Refused(failure_, failure_text_, refusal_);
  throw Error(failure_, failure_text_);
}

State Endpoint::state() {
  const Lock lock(mutex_);
  if (closed_) return State::closed;
  if (phase_ == Phase::idle) return State::idle;
  if (is_connecting()) return State::connecting;
  settled_told_ = true;
  tell();
  const bool lost = broken_ != 0 && !(flow_ && flow_->end_seen());
  return failure_ != 0 || lost ? State::failed : State::connected;
}

int Endpoint::error_number() {
  const Lock lock(mutex_);
  return failure_ != 0 ? failure_ : broken_;
}

std::span<const std::byte> Endpoint::peer_private_data() {
  const Lock lock(mutex_);
  return peer_.private_data;
}

Variant Endpoint::variant() {
  const Lock lock(mutex_);
  return flow_ ? wire_->variant() : Variant::automatic;
}

const verbs::Id& Endpoint::id() {
  const Lock lock(mutex_);
  if (!id_) throw Error(ENOTCONN, "the stream has no address yet");
  return *id_;
}

const verbs::ProtectionDomain& Endpoint::domain() {
  const Lock lock(mutex_);
  if (!wire_) throw Error(ENOTCONN, "the stream has no device yet");
  return wire_->domain();
}

}  // namespace weft::stream::detail
