// Resolves the address and route of a peer, and creates the connection's core from the result.
#pragma once

#include <memory>
#include <string>

#include "connection/conditions.h"
#include "connection/core.h"

namespace weft::connection::detail {

class AddressResolution : public Condition {
 public:
  // Starts the resolution. A host name would be looked up first, which may block: callers pass a
  // numeric address. Throws Error.
  AddressResolution(const Address& peer, const Options& options);

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override { return {events_.fd()}; }
  // Creates the core. To be called once holds() has returned true.
  [[nodiscard]] std::unique_ptr<Core> make();

  // The operation and the peer, for errors.
  [[nodiscard]] std::string what() const { return "resolve " + peer_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  Options options_;
  std::optional<verbs::ProtectionDomain> domain_;
  std::string peer_;  // "host port 7174"
  verbs::EventChannel events_;
  verbs::Id id_;
  rdma_cm_event_type expected_event_ = RDMA_CM_EVENT_ADDR_RESOLVED;
};

}  // namespace weft::connection::detail
