#include "weft/stream/listener.hpp"

#include <fmt/format.h>

#include "stream/door.h"

namespace weft::stream {
namespace detail {

Door::Door(const Address& address, const Options& options)
    : options_((check(options), options)), events_(options.backend), id_(events_) {
  if (options.ipv6_only) id_.set_ipv6_only(true);
  id_.bind(address);
}

Door::Door(const Options& options)
    : options_((check(options), options)),
      events_(options.backend),
      id_(events_),
      listening_(true) {}

Door::~Door() {
  if (token_) Pump::instance().remove(*token_, {events_.fd()});
}

void Door::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  if (listening_) throw Error(EINVAL, "the listener listens already");
  id_.listen(backlog);
  listening_ = true;
}

void Door::need_listening() {
  const std::lock_guard lock(mutex_);
  if (listening_) return;
  id_.listen(0);
  listening_ = true;
}

void Door::adopt(int connection) {
  id_.adopt(connection);
}

std::optional<Reason> Door::objection(const StreamGreeting& greeting) const {
  if (greeting.type != GreetingType::request) return Reason::malformed;
  const std::uint8_t ours = options_.variant == Variant::automatic   ? 0xFF
                            : options_.variant == Variant::immediate ? variant_immediate
                                                                     : variant_write_and_send;
  if ((greeting.variants & ours) == 0) return Reason::no_variant;
  return std::nullopt;
}

void Door::refuse(const verbs::Id& id, Reason reason) {
  ++refused_;
  try {
    id.reject(StreamGreeting::refusal(reason).to_bytes());
  } catch (const Error&) {
    // It has gone already.
  }
}

std::optional<Request> Door::take() {
  while (auto event = events_.next(Deadline::now())) {
    // A peer that went before its request was looked at is no concern of anybody.
    if (event->type() != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    auto parsed = StreamGreeting::parse(event->private_data());
    verbs::Id id = event->take_request();
    event.reset();  // before the id moves to a channel of its own
    auto* greeting = std::get_if<StreamGreeting>(&parsed);
    const auto reason = greeting ? objection(*greeting) : std::get<Reason>(parsed);
    if (!reason) {
      return Request(std::make_unique<Asked>(std::move(id), std::move(*greeting), options_));
    }
    refuse(id, *reason);
  }
  return std::nullopt;
}

void Door::attach(std::shared_ptr<Events> queue, std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  queue_ = std::move(queue);
  cookie_ = cookie;
  Pump& pump = Pump::instance();
  if (!queue_ && token_) {
    pump.remove(*token_, {events_.fd()});
    token_.reset();
  } else if (queue_ && !token_) {
    token_ = pump.add(weak_from_this());
    pump.watch(*token_, events_.fd());
  }
}

void Door::attend() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    while (queue_) {
      auto request = take();
      if (!request) return;
      Event event{EventType::connect_request, cookie_, 0, std::nullopt};
      event.request.emplace(std::move(*request));
      queue_->push(std::move(event));
    }
  } catch (const std::exception&) {
    // Out of memory or descriptors: the peer is refused, the others wait for better times.
  }
}

}  // namespace detail

// --- Request -------------------------------------------------------------------------------------

Request::Request(std::unique_ptr<detail::Asked> asked) : asked_(std::move(asked)) {}
Request::Request(Request&&) noexcept = default;

Request& Request::operator=(Request&& other) noexcept {
  std::swap(asked_, other.asked_);
  return *this;
}

Request::~Request() {
  if (!asked_ || asked_->answered) return;
  try {
    std::move(*this).reject();
  } catch (const Error&) {
    // It has gone already.
  }
}

std::span<const std::byte> Request::private_data() const {
  return asked_->greeting.private_data;
}

std::string Request::peer_address() const {
  return asked_->id.peer_address();
}

std::string Request::local_address() const {
  return asked_->id.local_address();
}

Stream Request::accept(std::span<const std::byte> private_data) && {
  const Options options = asked_->options;
  return std::move(*this).accept(private_data, options);
}

Stream Request::accept(std::span<const std::byte> private_data, const Options& options) && {
  const std::size_t most = max_private_data_bytes(options.backend);
  if (private_data.size() > most) {
    throw Error(EINVAL, fmt::format("private data may have {} bytes, and not {}", most,
                                    private_data.size()));
  }
  auto endpoint = std::make_shared<detail::Endpoint>(options);
  endpoint->accept(*asked_, private_data);
  return Stream(std::move(endpoint));
}

void Request::reject(std::span<const std::byte> private_data) && {
  if (private_data.size() > max_private_data_bytes(asked_->options.backend)) {
    throw Error(EINVAL, "the private data of a rejection is too long");
  }
  asked_->answered = true;
  asked_->id.reject(
      detail::StreamGreeting::refusal(detail::Reason::by_user, private_data).to_bytes());
}

// --- Listener ------------------------------------------------------------------------------------

Listener::Listener(const Address& address, const Options& options)
    : door_(std::make_shared<detail::Door>(address, options)) {}
Listener::Listener(std::shared_ptr<detail::Door> door) : door_(std::move(door)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

void Listener::listen(int backlog) {
  door_->listen(backlog);
}

Listener Listener::for_connections(const Options& options) {
  return Listener(std::make_shared<detail::Door>(options));
}

void Listener::adopt(int connection) {
  door_->adopt(connection);
}

std::uint16_t Listener::port() const {
  return door_->id().local_port();
}

std::string Listener::local_address() const {
  return door_->id().local_address();
}

std::optional<Request> Listener::next(Deadline deadline) {
  door_->need_listening();
  while (true) {
    if (auto request = door_->take()) return request;
    if (!detail::await_readable(door_->fd(), deadline)) return std::nullopt;
  }
}

Stream Listener::accept(Deadline deadline, std::span<const std::byte> private_data) {
  while (auto request = next(deadline)) {
    Stream stream = std::move(*request).accept(private_data);
    try {
      if (stream.await_connected(deadline)) return stream;
    } catch (const Error&) {
      continue;  // it has changed its mind: the next one
    }
  }
  throw Error(ETIMEDOUT, fmt::format("nobody has connected to port {}", port()));
}

int Listener::fd() const {
  return door_->fd();
}

void Listener::attach(EventQueue* queue, std::uint64_t cookie) {
  if (queue) door_->need_listening();
  door_->attach(queue ? queue->events_ : nullptr, cookie);
}

std::uint64_t Listener::refused() const {
  return door_->refused();
}

const verbs::Id& Listener::id() const {
  return door_->id();
}

}  // namespace weft::stream
