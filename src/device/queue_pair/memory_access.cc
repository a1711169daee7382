#include "device/queue_pair/memory_access.h"

namespace weft::device {

iwarp::Memory MemoryAccess::remote_memory(const RemoteAccess& access) const {
  return check_remote(table_.find(access.stag), accessor(), access);
}

// Only a window of type 2 can be invalidated: it belongs to one queue pair. A region serves all
// queue pairs of its domain, so one peer could withdraw it from all others (RFC 5042 §6.4.5).
bool MemoryAccess::invalidate(std::uint32_t stag) {
  const Region* region = table_.find(stag);
  return region && region->window && region->window->invalidate(stag, accessor());
}

// The region may be deregistered between the access and its count, so it is looked up again.
void MemoryAccess::count(const iwarp::PeerAccess& access) {
  if (Region* region = table_.find(access.stag)) region->counters.add(access);
}

// Made for each access, because ibv_modify_qp(3) may change the flags in between.
Accessor MemoryAccess::accessor() const {
  return {.domain = remote_domain_, .queue_pair = number_, .access = attributes_.qp_access_flags};
}

// Keys are looked up when the turn of the request has come, not when it is posted: requests before
// it may bind or invalidate the same window.
iwarp::Status MemoryAccess::carry_out_next() {
  const LocalRequest request = local_requests_.front();
  local_requests_.pop_front();
  if (request.window) return request.window->bind(table_, number_, request.binding);
  return invalidate(request.binding.rkey) ? iwarp::Status::success : iwarp::Status::local_operation;
}

}  // namespace weft::device
