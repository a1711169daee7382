#include "connection/resolving.h"

#include <fmt/format.h>

namespace weft::connection::detail {
namespace {

// Deadlines are ours to keep; this only ends what nobody waits for any more.
constexpr std::chrono::seconds long_enough{60};

}  // namespace

Resolving::Resolving(const Address& peer, const Options& options)
    : options_(options),
      what_(fmt::format("resolve {} port {}", peer.host, peer.port)),
      events_(options.backend),
      id_(events_) {
  if (options.domain) domain_ = options.domain->share();
  options_.domain = nullptr;
  id_.resolve_address(peer, long_enough);
}

bool Resolving::holds() {
  while (const auto event = events_.next(Deadline::now())) {
    if (event->type() != wanted_) {
      throw Error(event->status() < 0 ? -event->status() : EHOSTUNREACH,
                  fmt::format("cannot {}: {}", what_, event->name()));
    }
    if (wanted_ == RDMA_CM_EVENT_ROUTE_RESOLVED) return true;
    wanted_ = RDMA_CM_EVENT_ROUTE_RESOLVED;
    id_.resolve_route(long_enough);
  }
  return false;
}

std::unique_ptr<Core> Resolving::make() {
  options_.domain = domain_ ? &*domain_ : nullptr;
  return std::make_unique<Core>(std::move(events_), std::move(id_), options_);
}

void check_woken(Woken woken, const std::string& what) {
  if (woken == Woken::late) throw Error(ETIMEDOUT, "cannot " + what);
  if (woken == Woken::stopped) throw Error(ECANCELED, "cannot " + what);
}

}  // namespace weft::connection::detail
