#include <fmt/format.h>

#include "connection/address_resolution.h"
#include "connection/core_waits.h"
#include "connection/listener_state.h"
#include "verbs/lost_peer.h"

namespace weft::connection {

Listener::Listener(const Address& address, const Options& options, int backlog)
    : state_(std::make_unique<State>(address, options, backlog)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

std::uint16_t Listener::port() const {
  return state_->id.local_port();
}

int Listener::fd() const {
  return state_->accepted.fd();
}

const verbs::Id& Listener::id() const {
  return state_->id;
}

// Moves each new id to an event channel of its own, so that waiting for one connection does not
// consume the events of another.
bool Listener::NextCondition::holds() {
  while (auto event = state_.events.next(Deadline::now())) {
    // Ignore other events: a peer that has given up before its request was read needs no answer.
    if (event->type() != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    const auto peer_data = event->private_data();
    const std::vector<std::byte> private_data(peer_data.begin(), peer_data.end());
    verbs::Id id = event->take_request();
    event.reset();  // an id can migrate only after its events are acknowledged
    verbs::EventChannel events = id.new_channel();
    id.migrate(events);
    Options options = state_.options;
    options.domain = state_.domain ? &*state_.domain : nullptr;
    auto core = std::make_unique<detail::Core>(std::move(events), std::move(id), options);
    // The queue pair exists by now, so that the program can post receives before it accepts.
    core->unwrap(private_data, detail::CarriedBy::request);
    found_.emplace(Request(std::move(core)));
    return true;
  }
  return false;
}

std::optional<Request> Listener::next(Deadline deadline, std::stop_token stop) {
  NextCondition condition(*state_);
  detail::Waiter waiter(deadline, std::move(stop));
  if (waiter.until(condition) != detail::Woken::ready) return std::nullopt;
  return condition.take();
}

// Requests wait in the listener's backlog while there is no room. Peers that disconnect before they
// are connected are skipped.
void Listener::AcceptCondition::answer_requests() {
  NextCondition request(state_);
  while (state_.accepted.has_room() && request.holds()) {
    auto core = request.take()->take();
    try {
      core->begin_accepting(greeting_);
    } catch (const Error& error) {
      if (!verbs::detail::is_lost_peer(error.error_number())) throw;
      continue;
    }
    state_.accepted.add(std::move(core));
  }
}

bool Listener::AcceptCondition::holds() {
  found_ = state_.accepted.take();
  if (found_) return true;
  answer_requests();
  found_ = state_.accepted.take();
  return found_ != nullptr;
}

void check_accepted(const Listener& listener, detail::Woken woken) {
  if (woken == detail::Woken::ready) return;
  throw Error(woken == detail::Woken::stopped ? ECANCELED : ETIMEDOUT,
              fmt::format("no peer has connected to port {}", listener.port()));
}

Connection Listener::accept(Deadline deadline, const Greeting& greeting, std::stop_token stop) {
  AcceptCondition connected(*state_, greeting);
  detail::Waiter waiter(deadline, std::move(stop));
  check_accepted(*this, waiter.until(connected));
  return connected.take();
}

// --- Request -------------------------------------------------------------------------------------

Request::Request(std::unique_ptr<detail::Core> core) : ConnectionEnd(std::move(core)) {}

std::span<const std::byte> Request::private_data() const {
  return core().peer_private_data();
}

Connection Request::accept(const Greeting& greeting, Deadline deadline, std::stop_token stop) && {
  const std::string peer = peer_address();
  auto core = take();  // destroyed, with its id, where this throws: a request is decided once
  detail::Waiter waiter(deadline, std::move(stop));
  core->begin_accepting(greeting);
  detail::ConnectedCondition connected(*core);
  detail::check_woken(waiter.until(connected), "accept " + peer, peer);
  return Connection(std::move(core));
}

// The core is destroyed here, after the rejection is sent.
void Request::reject(std::span<const std::byte> private_data) && {
  const auto core = take();
  core->reject(private_data);
}

}  // namespace weft::connection
