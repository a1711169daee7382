#include "connection/address_resolution.h"

#include <fmt/format.h>

namespace weft::connection::detail {
namespace {

// The timeout of rdma_resolve_addr(3). The caller's deadline ends the wait; this only ends an
// abandoned resolution.
constexpr std::chrono::seconds resolution_timeout{60};

}  // namespace

AddressResolution::AddressResolution(const Address& peer, const Options& options)
    : options_(options),
      peer_(fmt::format("{} port {}", peer.host, peer.port)),
      events_(channel_for(options)),
      id_(events_) {
  if (options.domain) domain_ = options.domain->share();
  options_.domain = nullptr;
  options_.device = nullptr;
  id_.resolve_address(peer, resolution_timeout);
}

// Resolving the address binds the id to a device, and resolving the route makes it ready for a
// queue pair.
bool AddressResolution::holds() {
  while (const auto event = events_.next(Deadline::now())) {
    if (event->type() != expected_event_) {
      throw Error(event->status() < 0 ? -event->status() : EHOSTUNREACH,
                  fmt::format("cannot {}: {}", what(), event->description()),
                  {.object = "address", .peer = peer_});
    }
    if (expected_event_ == RDMA_CM_EVENT_ROUTE_RESOLVED) return true;
    expected_event_ = RDMA_CM_EVENT_ROUTE_RESOLVED;
    id_.resolve_route(resolution_timeout);
  }
  return false;
}

std::unique_ptr<Core> AddressResolution::make() {
  options_.domain = domain_ ? &*domain_ : nullptr;
  return std::make_unique<Core>(std::move(events_), std::move(id_), options_);
}

}  // namespace weft::connection::detail
