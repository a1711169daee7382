#include "device/queue_pair/memory_access.h"

namespace weft::device {

iwarp::Memory MemoryAccess::local_memory(const iwarp::LocalSlice& slice, bool for_writing) {
  return check_local(table_.find(slice.lkey), domain_, slice, for_writing);
}

iwarp::Memory MemoryAccess::remote_memory(const RemoteAccess& access) const {
  return check_remote(table_.find(access.stag), accessor(), access);
}

// Windows of type 2 and regions that grant a remote right can be invalidated, once.
bool MemoryAccess::invalidate(std::uint32_t stag) {
  Region* region = table_.find(stag);
  if (!region) return false;
  if (region->window) return region->window->invalidate(stag, accessor());
  if (region->stag != stag || region->domain != domain_) return false;
  constexpr std::uint32_t remote =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((region->access & remote) == 0) return false;
  return region->remote_valid.exchange(false);
}

void MemoryAccess::count(const iwarp::PeerAccess& access) {
  if (Region* region = table_.find(access.stag)) region->counters.add(access);
}

Accessor MemoryAccess::accessor() const {
  return {.domain = domain_, .queue_pair = number_, .access = attributes_.qp_access_flags};
}

iwarp::Status MemoryAccess::carry_out_next() {
  const LocalRequest request = local_requests_.front();
  local_requests_.pop_front();
  if (request.window) return request.window->bind(table_, number_, request.binding);
  return invalidate(request.binding.rkey) ? iwarp::Status::success : iwarp::Status::local_operation;
}

}  // namespace weft::device
