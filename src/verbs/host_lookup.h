// Looks up the name of a host without blocking an event loop.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "verbs/suspension.h"
#include "verbs/waiter.h"
#include "weft/verbs/rdma_cm.hpp"

namespace weft::verbs::detail {

// The numeric address of `address`, by rdma_getaddrinfo(3), which may wait for a name server.
// Throws Error.
[[nodiscard]] Address numeric_address(Backend backend, const Address& address);

// The lookup runs in a thread of its own, which outlives this object where the wait ends early: a
// lookup cannot be cancelled. A numeric address needs no thread.
class HostLookup : public Condition {
 public:
  HostLookup(Backend backend, const Address& address);

  [[nodiscard]] bool holds() override { return !shared_ || shared_->done.raised(); }
  [[nodiscard]] Descriptors descriptors() const override { return {fd()}; }
  // False for a numeric address: then there is no descriptor, and take() throws nothing.
  [[nodiscard]] bool has_begun() const { return shared_ != nullptr; }
  // Whether take() may be called without a wait, always for the same address: a numeric one, or any
  // in a simulation. A lookup in a thread may be done already, or not: its errors are not to be
  // thrown to the caller in the one case, and reported later in the other.
  [[nodiscard]] bool takes_no_time() const { return !shared_ || looked_up_; }
  // Readable once holds() returns true.
  [[nodiscard]] int fd() const { return shared_->done.fd(); }
  // To be called once holds() has returned true. Throws the lookup's Error.
  [[nodiscard]] Address take();

 private:
  struct Shared {
    EventFlag done;  // raised after the others are written
    Address found;
    std::exception_ptr failed;
  };

  Address address_;
  std::shared_ptr<Shared> shared_;
  bool looked_up_ = false;  // by the constructor
};

// Waits for the lookup. Throws its Error, ETIMEDOUT or ECANCELED.
[[nodiscard]] Task<Address> look_up(Suspension& suspension, Backend backend, Address address);

}  // namespace weft::verbs::detail
