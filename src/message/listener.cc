#include "weft/message/listener.hpp"

#include <utility>

#include "message/link.h"
#include "message/loop_core.h"
#include "weft/message/event_loop.hpp"

namespace weft::message {

using detail::Link;
using detail::PendingRequest;

// --- Request -------------------------------------------------------------------------------------

Request::Request(std::unique_ptr<PendingRequest> pending) : pending_(std::move(pending)) {}
Request::Request(Request&&) noexcept = default;

Request& Request::operator=(Request&& other) noexcept {
  std::swap(pending_, other.pending_);
  return *this;
}

// The peer gets an answer in any case, so that it does not wait for its timeout.
Request::~Request() {
  if (!pending_) return;
  detail::Rejection rejection;
  rejection.reason = detail::Reason::application;
  detail::reject_quietly(pending_->id, rejection);
}

std::span<const std::byte> Request::private_data() const {
  return pending_->greeting.private_data;
}

std::string Request::peer_address() const {
  return pending_->id.peer_address();
}

// The link is created before the request is taken out: if that throws, the request can still be
// accepted or rejected.
Connection Request::accept(Handlers handlers, const Options& options) {
  const auto loop = pending_->loop.lock();
  if (!loop) throw Error(ECANCELED, "the event loop of the request was destroyed");
  loop->check_thread();
  auto link = std::make_shared<Link>(*loop, std::move(handlers), options);
  const auto pending = pending_.take();
  link->accept(std::move(pending->id), std::move(pending->greeting), std::move(pending->counted));
  return Connection(std::move(link));
}

namespace {

// What another loop is to accept. A loop that is destroyed before it does so does not know the link
// yet, and ends it by destroying this.
struct Acceptance {
  std::shared_ptr<Link> link;
  std::shared_ptr<PendingRequest> pending;
  bool done = false;

  ~Acceptance() {
    if (!done && link) link->shut_down();
  }
  void run() {
    done = true;
    link->accept(std::move(pending->id), std::move(pending->greeting), std::move(pending->counted));
  }
};

}  // namespace

// The link is created here, so that the caller has a handle at once, and accepts in its own loop.
// The identifier moves to the other loop's event channel before that loop knows of it, so no event
// is lost between the two.
Connection Request::accept_on(EventLoop& loop, Handlers handlers, const Options& options) {
  static_cast<void>(pending_.get());  // throws if this is empty, before a link is made
  auto link = std::make_shared<Link>(*loop.core_, std::move(handlers), options);
  auto acceptance = std::make_shared<Acceptance>();
  acceptance->link = link;
  acceptance->pending = pending_.take();
  acceptance->pending->id.migrate(loop.core_->events());
  loop.post([acceptance] { acceptance->run(); });
  return Connection(std::move(link));
}

void Request::reject(std::span<const std::byte> private_data) {
  static_cast<void>(pending_.get());  // throws if this is empty, whatever the private data is
  if (private_data.size() > max_private_data_bytes) {
    throw Error(EINVAL, "too many bytes of private data for a rejection");
  }
  const auto pending = pending_.take();
  detail::Rejection rejection;
  rejection.reason = detail::Reason::application;
  rejection.private_data.assign(private_data.begin(), private_data.end());
  detail::reject_quietly(pending->id, rejection);
}

// --- Listener ------------------------------------------------------------------------------------

Listener::Listener(std::weak_ptr<detail::LoopCore> core, std::uint64_t number, std::uint16_t port)
    : core_(std::move(core)), number_(number), port_(port) {}

Listener::Listener(Listener&& other) noexcept
    : core_(std::exchange(other.core_, {})),
      number_(std::exchange(other.number_, 0)),
      port_(other.port_) {}

Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(core_, other.core_);
  std::swap(number_, other.number_);
  std::swap(port_, other.port_);
  return *this;
}

// The loop may be destroyed already, and the listener with it.
Listener::~Listener() {
  if (const auto core = core_.lock()) core->close_listener(number_);
}

std::size_t Listener::connections() const {
  check();
  const auto core = core_.lock();
  const auto counts = core ? core->counts(number_) : nullptr;
  return counts ? counts->connections.load() : 0;
}

std::uint64_t Listener::turned_away() const {
  check();
  const auto core = core_.lock();
  const auto counts = core ? core->counts(number_) : nullptr;
  return counts ? counts->turned_away : 0;
}

}  // namespace weft::message
