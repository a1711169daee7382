// The state of a listener, and the conditions to wait for its next request and connection.
#pragma once

#include <memory>
#include <optional>

#include "connection/accept_queue.h"
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
  detail::AcceptQueue accepted{events.fd()};
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

// Accepts all peers that have asked to connect, until one of them is connected.
struct Listener::AcceptCondition : detail::Condition {
  AcceptCondition(State& state, const Greeting& greeting) : state_(state), greeting_(greeting) {}

  [[nodiscard]] bool holds() override;
  [[nodiscard]] detail::Descriptors descriptors() const override { return {state_.accepted.fd()}; }
  [[nodiscard]] Connection take() { return Connection(std::move(found_)); }

 private:
  void answer_requests();

  State& state_;
  const Greeting& greeting_;
  std::unique_ptr<detail::Core> found_;
};

// Throws Error where a wait for a connection did not end with one.
void check_accepted(const Listener& listener, detail::Woken woken);

}  // namespace weft::connection
