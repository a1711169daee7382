#include "weft/connection/attempt.hpp"

#include "connection/resolving.h"

namespace weft::connection {

struct Attempt::State {
  explicit State(const Greeting& greeting)
      : private_data(greeting.private_data.begin(), greeting.private_data.end()),
        buffer(greeting.buffer) {}

  [[nodiscard]] Greeting greeting() const { return {private_data, buffer}; }

  std::vector<std::byte> private_data;
  std::optional<RemoteBuffer> buffer;
  std::optional<detail::Resolving> resolving;
  std::unique_ptr<detail::Core> core;  // once it is resolved
};

Attempt::Attempt(const Address& peer, const Options& options, const Greeting& greeting)
    : state_(std::make_unique<State>(greeting)) {
  state_->resolving.emplace(peer, options);
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
  if (state_->resolving) return state_->resolving->descriptors().all().front();
  return state_->core ? state_->core->events().fd() : -1;
}

std::optional<Connection> Attempt::take() {
  if (auto& resolving = state_->resolving) {
    if (!resolving->holds()) return std::nullopt;
    state_->core = resolving->make();
    resolving.reset();
    state_->core->begin_connecting(state_->greeting());
  }
  if (!state_->core || !state_->core->look_for_connection()) return std::nullopt;
  return Connection(std::move(state_->core));
}

}  // namespace weft::connection
