// Resolves the address and route of a peer, and creates the connection's core from the result.
#pragma once

#include <memory>
#include <string>

#include "connection/conditions.h"
#include "connection/core.h"

namespace weft::connection::detail {

class AddressResolution : public Condition {
 public:
  // Looks up a host name, which may block, and starts the resolution. Throws Error.
  AddressResolution(const Address& peer, const Options& options);

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override { return {events_.fd()}; }
  // Creates the core. To be called once holds() has returned true.
  [[nodiscard]] std::unique_ptr<Core> make();

  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  Options options_;
  std::optional<verbs::ProtectionDomain> domain_;
  std::string what_;
  verbs::EventChannel events_;
  verbs::Id id_;
  rdma_cm_event_type expected_event_ = RDMA_CM_EVENT_ADDR_RESOLVED;
};

}  // namespace weft::connection::detail
