// From an address to what a connection is made of.
#pragma once

#include <memory>
#include <string>

#include "connection/conditions.h"
#include "connection/core.h"

namespace weft::connection::detail {

class Resolving : public Condition {
 public:
  // Looks a name up, and begins the rest. Throws Error.
  Resolving(const Address& peer, const Options& options);

  [[nodiscard]] bool holds() override;
  [[nodiscard]] Descriptors descriptors() const override { return {events_.fd()}; }
  // Once it holds.
  [[nodiscard]] std::unique_ptr<Core> make();

  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  Options options_;
  std::optional<verbs::ProtectionDomain> domain_;
  std::string what_;
  verbs::EventChannel events_;
  verbs::Id id_;
  rdma_cm_event_type wanted_ = RDMA_CM_EVENT_ADDR_RESOLVED;
};

// Throws Error(ETIMEDOUT) or Error(ECANCELED) where a wait ended otherwise.
void check_woken(Woken woken, const std::string& what);

}  // namespace weft::connection::detail
