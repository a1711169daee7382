#include "device/memory/memory_window.h"

namespace weft::device {
namespace {

constexpr unsigned remote_rights =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// Writes by a peer change local memory, so the region must allow that to its own process as well.
constexpr unsigned rights_to_change = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

// The window is in the table from the start, but grants no access before it is bound.
MemoryWindow::MemoryWindow(ibv_pd* pd, std::uint32_t domain, ibv_mw_type type) {
  mw_.context = pd->context;
  mw_.pd = pd;
  mw_.type = type;
  region_.domain = domain;
  region_.remote_valid = false;
  region_.window = this;
}

// The rules of ibv_bind_mw(3) and IBV_WR_BIND_MW: only the consumer's key changes, type 2 must be
// invalid before, and the region must allow binding, and local writes if the window grants remote
// writes.
bool MemoryWindow::acceptable(const Region* source, const Binding& binding) const {
  if ((binding.rkey ^ region_.stag) > 0xFF) return false;  // the STag of another window
  // A bind of no bytes unbinds a window of type 1 (ibv_bind_mw(3)); one of type 2 is invalidated
  // instead.
  if (binding.length_bytes == 0) return mw_.type == IBV_MW_TYPE_1;
  if (mw_.type != IBV_MW_TYPE_1 && region_.remote_valid) return false;  // invalidate it first
  if (!source || source->window || source->mr.lkey != binding.lkey) return false;
  if (source->domain != region_.domain || (source->access & IBV_ACCESS_MW_BIND) == 0) return false;
  if ((binding.access & rights_to_change) != 0 && (source->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return false;
  }
  const std::uint64_t offset = binding.address - source->iova;
  return binding.address >= source->iova && offset <= source->length_bytes &&
         binding.length_bytes <= source->length_bytes - offset;
}

iwarp::Status MemoryWindow::bind(MemoryTable& table, std::uint32_t queue_pair,
                                 const Binding& binding) {
  const std::lock_guard lock(mutex_);
  Region* source = table.find(binding.lkey);
  if (!acceptable(source, binding)) return iwarp::Status::window_bind;
  // A window of type 1 may be bound anew while it is bound.
  release();
  region_.stag = binding.rkey;
  if (binding.length_bytes == 0) return iwarp::Status::success;
  ++source->windows;
  source_ = source;
  // check after counting; deregistration sets `leaving` and then reads the count
  if (source->leaving) {
    release();
    return iwarp::Status::window_bind;
  }
  queue_pair_ = queue_pair;
  region_.access = binding.access & remote_rights;
  region_.iova = (binding.access & IBV_ACCESS_ZERO_BASED) ? 0 : binding.address;
  region_.base = source->base + (binding.address - source->iova);
  region_.length_bytes = binding.length_bytes;
  // check_remote() takes this lock before it looks, so a peer sees all of the bind or nothing.
  region_.remote_valid = true;
  return iwarp::Status::success;
}

// A peer may only invalidate through the queue pair that bound the window (type 2).
bool MemoryWindow::invalidate(std::uint32_t rkey, const Accessor& accessor) {
  const std::lock_guard lock(mutex_);
  const bool allowed = mw_.type != IBV_MW_TYPE_1 && region_.stag == rkey && region_.remote_valid &&
                       region_.domain == accessor.domain && serves(accessor.queue_pair);
  if (allowed) release();
  return allowed;
}

void MemoryWindow::unbind() {
  const std::lock_guard lock(mutex_);
  release();
}

// The lock must be held. The key stays in the table and matches no access.
void MemoryWindow::release() {
  region_.remote_valid = false;
  if (source_) --source_->windows;
  source_ = nullptr;
}

}  // namespace weft::device
