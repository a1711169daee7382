// The state of a listener, and the condition to wait for its next request.
#pragma once

#include <optional>

#include "connection/conditions.h"
#include "connection/core.h"
#include "weft/connection/listener.hpp"

namespace weft::connection {

struct Listener::State {
  State(const Address& address, const Options& requested, int backlog)
      : options(requested), events(detail::channel_for(requested)), id(events) {
    if (requested.domain) domain = requested.domain->share();
    options.domain = nullptr;
    options.device = nullptr;  // the id knows it
    id.bind(address);
    id.listen(backlog);
  }

  Options options;
  std::optional<verbs::ProtectionDomain> domain;
  verbs::EventChannel events;
  verbs::Id id;
};

struct Listener::NextCondition : detail::Condition {
  explicit NextCondition(State& state) : state_(state) {}

  [[nodiscard]] bool holds() override;
  [[nodiscard]] detail::Descriptors descriptors() const override { return {state_.events.fd()}; }
  [[nodiscard]] std::optional<Request> take() { return std::move(found_); }

 private:
  State& state_;
  std::optional<Request> found_;
};

}  // namespace weft::connection
