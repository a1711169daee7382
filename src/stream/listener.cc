#include "weft/stream/listener.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <optional>

#include "stream/endpoint.h"
#include "stream/listener_core.h"
#include "stream/private_data.h"
#include "verbs/lost_peer.h"

namespace weft::stream {
namespace detail {

namespace {

verbs::EventChannel channel_of(const Options& options) {
  return options.device ? verbs::EventChannel(*options.device)
                        : verbs::EventChannel(options.backend);
}

}  // namespace

ListenerCore::ListenerCore(const Address& address, const Options& options)
    : options_((check(options), options)), events_(channel_of(options)), id_(events_) {
  options_.device = nullptr;  // the id knows it
  if (options.ipv6_only) id_.set_ipv6_only(true);
  id_.bind(address);
}

// The listener of Listener::for_connections(): it is not bound, and has nothing to listen to.
ListenerCore::ListenerCore(const Options& options)
    : options_((check(options), options)),
      events_(channel_of(options)),
      id_(events_),
      listening_(true) {
  options_.device = nullptr;
}

void ListenerCore::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  if (listening_) throw Error(EINVAL, "the listener listens already");
  id_.listen(backlog);
  StreamThread::serve_device();
  listening_ = true;
}

void ListenerCore::ensure_listening() {
  const std::lock_guard lock(mutex_);
  if (listening_) return;
  // 0: the backlog of the device.
  id_.listen(0);
  StreamThread::serve_device();
  listening_ = true;
}

void ListenerCore::adopt(int connection) {
  id_.adopt(connection);
}

// The request is checked again when it is accepted, with the options and the device of the stream.
std::optional<Reason> ListenerCore::reason_to_refuse(const StreamGreeting& greeting) const {
  if (greeting.type != GreetingType::request) return Reason::malformed;
  const std::uint8_t allowed = options_.variant == Variant::automatic   ? 0xFF
                               : options_.variant == Variant::immediate ? variant_immediate
                                                                        : variant_write_and_send;
  if ((greeting.variants & allowed) == 0) return Reason::no_variant;
  return std::nullopt;
}

void ListenerCore::refuse(const verbs::Id& id, Reason reason) {
  ++refused_;
  try {
    id.reject(StreamGreeting::refusal(reason).to_bytes());
  } catch (const Error&) {
    // The peer has disconnected already.
  }
}

std::optional<Request> ListenerCore::take() {
  while (auto event = events_.next(Deadline::now())) {
    // Other events report a peer that disconnected before its request was taken: nothing to do.
    if (event->type() != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    auto parsed = StreamGreeting::parse(event->private_data());
    verbs::Id id = event->take_request();
    event.reset();  // before the id moves to a channel of its own
    auto* greeting = std::get_if<StreamGreeting>(&parsed);
    const auto reason = greeting ? reason_to_refuse(*greeting) : std::get<Reason>(parsed);
    // A request that cannot become a stream is refused here and never shown to the program.
    if (!reason) {
      return Request(
          std::make_unique<PendingRequest>(std::move(id), std::move(*greeting), options_));
    }
    refuse(id, *reason);
  }
  return std::nullopt;
}

namespace {

// Nothing where the peer has disconnected already. Throws where this side is the reason.
std::optional<Stream> accept_unless_lost(Request request, std::span<const std::byte> private_data) {
  try {
    return std::move(request).accept(private_data);
  } catch (const Error& error) {
    if (!verbs::detail::is_lost_peer(error.error_number())) throw;
    return std::nullopt;
  }
}

}  // namespace

AcceptQueue& ListenerCore::accepting() {
  const std::lock_guard lock(mutex_);
  if (!accepting_) accepting_ = std::make_unique<AcceptQueue>();
  return *accepting_;
}

// Requests wait in the listener's backlog while a stream is connected already. Peers that
// disconnect before their stream is connected are skipped.
std::optional<Stream> ListenerCore::accept(std::span<const std::byte> private_data) {
  ensure_listening();
  AcceptQueue& queue = accepting();
  auto found = queue.take();
  if (found) return found;
  while (queue.has_room()) {
    auto request = take();
    if (!request) break;
    auto accepted = accept_unless_lost(std::move(*request), private_data);
    if (accepted) queue.add(std::move(*accepted));
  }
  return queue.take();
}

// The stream thread takes the requests only while a queue is attached.
void ListenerCore::attach(std::shared_ptr<EventQueueCore> queue, std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  queue_ = std::move(queue);
  cookie_ = cookie;
  untaken_ = queue_ ? std::make_shared<UntakenRequests>(weak_from_this()) : nullptr;
  observed_.set(queue_ != nullptr);
  if (!queue_) {
    registration_.leave();
    watching_ = false;
    return;
  }
  if (!registration_) registration_.enter(weak_from_this());
  watch();
}

void ListenerCore::watch() {
  if (!watching_) registration_.watch(events_.fd());
  watching_ = true;
}

void UntakenRequests::note_taken() {
  if (count_-- < most) return;
  if (const auto listener = listener_.lock()) listener->go_on();
}

void ListenerCore::go_on() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (queue_) watch();
  } catch (const std::exception&) {
    // Out of memory. The next request that is taken from a full queue tries again.
  }
}

// Moves the requests that have arrived to the event queue, as far as it has room for them.
void ListenerCore::on_io() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    while (queue_) {
      if (untaken_->full()) {
        registration_.unwatch(events_.fd());
        watching_ = false;
        return;
      }
      auto request = take();
      if (!request) return;
      Event event{EventType::connect_request, cookie_, 0, std::nullopt};
      event.request.emplace(std::move(*request));
      untaken_->note_queued();
      queue_->push(std::move(event), untaken_);
    }
  } catch (const std::exception&) {
    // Out of memory or descriptors. The peer of this request was rejected when the request was
    // destroyed; the others are taken at the next event.
  }
}

}  // namespace detail

// --- Request -------------------------------------------------------------------------------------

// The destructor rejects the request unless it was answered, or moved to another handle.
Request::Request(std::unique_ptr<detail::PendingRequest> pending) : pending_(std::move(pending)) {}
Request::Request(Request&&) noexcept = default;

Request& Request::operator=(Request&& other) noexcept {
  std::swap(pending_, other.pending_);
  return *this;
}

Request::~Request() {
  if (!pending_ || pending_->answered) return;
  try {
    std::move(*this).reject();
  } catch (const Error&) {
    // The peer has disconnected already.
  }
}

// A request that was accepted or rejected has given its identifier away, so it counts as empty.
detail::PendingRequest& Request::undecided() const {
  if (pending_->answered) weft::detail::throw_empty("weft::stream::Request");
  return *pending_;
}

std::span<const std::byte> Request::private_data() const {
  return undecided().greeting.private_data;
}

std::string Request::peer_address() const {
  return undecided().id.peer_address();
}

std::string Request::local_address() const {
  return undecided().id.local_address();
}

Stream Request::accept(std::span<const std::byte> private_data) && {
  const Options options = undecided().options;
  return std::move(*this).accept(private_data, options);
}

Stream Request::accept(std::span<const std::byte> private_data, const Options& options) && {
  detail::PendingRequest& request = undecided();
  detail::check_private_data(private_data.size(), options.backend);
  auto endpoint = std::make_shared<detail::Endpoint>(options);
  endpoint->accept(request, private_data);
  return Stream(std::move(endpoint));
}

void Request::reject(std::span<const std::byte> private_data) && {
  detail::PendingRequest& request = undecided();
  detail::check_private_data(private_data.size(), request.options.backend);
  request.answered = true;
  request.id.reject(
      detail::StreamGreeting::refusal(detail::Reason::by_user, private_data).to_bytes());
}

// --- Listener ------------------------------------------------------------------------------------

Listener::Listener(const Address& address, const Options& options)
    : core_(std::make_shared<detail::ListenerCore>(address, options)) {}
Listener::Listener(std::shared_ptr<detail::ListenerCore> core) : core_(std::move(core)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

void Listener::listen(int backlog) {
  core_->listen(backlog);
}

Listener Listener::for_connections(const Options& options) {
  return Listener(std::make_shared<detail::ListenerCore>(options));
}

void Listener::adopt(int connection) {
  core_->adopt(connection);
}

std::uint16_t Listener::port() const {
  return core_->id().local_port();
}

std::string Listener::local_address() const {
  return core_->id().local_address();
}

// Another thread may take the request between the wake-up and take(): then this waits again.
std::optional<Request> Listener::next(Deadline deadline) {
  core_->ensure_listening();
  while (true) {
    if (auto request = core_->take()) return request;
    if (!detail::await_readable(std::array{core_->fd()}, deadline)) return std::nullopt;
  }
}

// Another thread may take the stream that this one was woken for: then this waits again.
Stream Listener::accept(Deadline deadline, std::span<const std::byte> private_data) {
  while (true) {
    if (auto stream = core_->accept(private_data)) return std::move(*stream);
    if (!detail::await_readable(core_->accept_descriptors().all(), deadline)) {
      throw Error(ETIMEDOUT, fmt::format("no peer has connected to port {}", port()));
    }
  }
}

int Listener::fd() const {
  // Readable while a request may wait; next() takes it.
  return core_->fd();
}

void Listener::attach(EventQueue* queue, std::uint64_t cookie) {
  if (queue) core_->ensure_listening();
  core_->attach(queue ? queue->events_.get() : nullptr, cookie);
}

std::uint64_t Listener::refused() const {
  return core_->refused();
}

const verbs::Id& Listener::id() const {
  return core_->id();
}

}  // namespace weft::stream
