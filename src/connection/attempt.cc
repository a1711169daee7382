#include "weft/connection/attempt.hpp"

#include "connection/address_resolution.h"
#include "verbs/host_lookup.h"

namespace weft::connection {

struct Attempt::State {
  explicit State(const Greeting& greeting)
      : private_data(greeting.private_data.begin(), greeting.private_data.end()),
        buffer(greeting.buffer) {}

  [[nodiscard]] Greeting greeting() const { return {private_data, buffer}; }

  // The address is numeric from here on.
  void resolve(const Address& peer) {
    options.domain = domain ? &*domain : nullptr;
    resolution.emplace(peer, options);
    lookup.reset();
  }

  Options options{};
  std::optional<verbs::ProtectionDomain> domain;  // of the options, which may refer to a temporary
  std::vector<std::byte> private_data;
  std::optional<RemoteBuffer> buffer;
  std::optional<verbs::detail::HostLookup> lookup;
  std::optional<detail::AddressResolution> resolution;
  std::unique_ptr<detail::Core> core;  // set once the address is resolved
};

// The private data is copied: it is sent later, when the address is resolved.
Attempt::Attempt(const Address& peer, const Options& options, const Greeting& greeting)
    : state_(std::make_unique<State>(greeting)) {
  state_->options = options;
  if (options.domain) state_->domain = options.domain->share();
  state_->lookup.emplace(options.backend, peer);
  if (!state_->lookup->has_begun()) state_->resolve(state_->lookup->take());
}

Attempt::Attempt(Prepared&& prepared, const Greeting& greeting)
    : state_(std::make_unique<State>(greeting)) {
  state_->core = std::move(prepared).take();
  state_->core->begin_connecting(greeting);
}

Attempt::Attempt(Request&& request, const Greeting& greeting)
    : state_(std::make_unique<State>(greeting)) {
  state_->core = std::move(request).take();
  state_->core->begin_accepting(greeting);
}

Attempt::Attempt(Attempt&&) noexcept = default;
Attempt& Attempt::operator=(Attempt&&) noexcept = default;
Attempt::~Attempt() = default;

int Attempt::fd() const {
  if (state_->lookup) return state_->lookup->fd();
  if (state_->resolution) return state_->resolution->descriptors().all().front();
  // The descriptor changes with the step, so a caller asks for it again after each take().
  return state_->core ? state_->core->events().fd() : -1;
}

// Continues with the next step when one is complete; each step has a channel descriptor to wait
// for.
std::optional<Connection> Attempt::take() {
  if (auto& lookup = state_->lookup) {
    if (!lookup->holds()) return std::nullopt;
    state_->resolve(lookup->take());
  }
  if (auto& resolution = state_->resolution) {
    if (!resolution->holds()) return std::nullopt;
    state_->core = resolution->make();
    resolution.reset();
    state_->core->begin_connecting(state_->greeting());
  }
  if (!state_->core || !state_->core->poll_connected()) return std::nullopt;
  return Connection(std::move(state_->core));
}

}  // namespace weft::connection
