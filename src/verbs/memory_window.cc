#include "weft/verbs/memory_window.hpp"

#include <fmt/format.h>

#include "verbs/failure.h"
#include "verbs/state.h"
#include "weft/verbs/domain.hpp"
#include "weft/verbs/queue_pair.hpp"

namespace weft::verbs {
namespace {

// A window gives rights to the peer only; local access is a matter of the region.
constexpr unsigned remote_rights =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

int post(ibv_qp* queue_pair, ibv_send_wr& request) {
  ibv_send_wr* bad = nullptr;
  return detail::errno_of(ibv_post_send(queue_pair, &request, &bad));
}

}  // namespace

MemoryWindow ProtectionDomain::allocate_window(ibv_mw_type type) const {
  ibv_mw* made = ibv_alloc_mw(raw_, type);
  if (!made) {
    const int why = errno;
    detail::fail(why, fmt::format("cannot allocate a memory window of type {} on {}",
                                  static_cast<int>(type), state_->context->device_name()));
  }
  return MemoryWindow(std::make_shared<detail::MemoryWindowState>(state_, made));
}

MemoryWindow::MemoryWindow(std::shared_ptr<detail::MemoryWindowState> state)
    : state_(std::move(state)), raw_(state_->raw), remote_(0, 0, raw_->rkey) {}

// ibv_bind_mw(3) chooses the rkey of a type 1 window, and writes it to the window.
int MemoryWindow::post_bind_of_type_1(ibv_qp* queue_pair, const ibv_mw_bind& binding) {
  // The C function takes a pointer that is not const.
  ibv_mw_bind copy = binding;
  const int failed = detail::errno_of(ibv_bind_mw(queue_pair, raw_, &copy));
  if (failed) return failed;
  remote_ = {binding.bind_info.addr, binding.bind_info.length, raw_->rkey};
  return 0;
}

// The program chooses the rkey of a type 2 window; ibv_inc_rkey() gives each bind a new one, so
// that the old rkey becomes invalid.
int MemoryWindow::post_bind_of_type_2(ibv_qp* queue_pair, const ibv_mw_bind& binding) {
  ibv_send_wr request{};
  request.wr_id = binding.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = binding.send_flags;
  request.bind_mw = {raw_, ibv_inc_rkey(remote_.rkey()), binding.bind_info};
  const int failed = post(queue_pair, request);
  if (failed) return failed;
  remote_ = {binding.bind_info.addr, binding.bind_info.length, request.bind_mw.rkey};
  return 0;
}

int MemoryWindow::post_bind(ibv_qp* queue_pair, const ibv_mw_bind& binding) {
  return raw_->type == IBV_MW_TYPE_1 ? post_bind_of_type_1(queue_pair, binding)
                                     : post_bind_of_type_2(queue_pair, binding);
}

int QueuePair::post_bind(MemoryWindow& window, const WindowBinding& binding, std::uint64_t id,
                         SendFlags flags) const {
  const MemoryRegion& region = binding.region;
  if (binding.bytes == 0 || binding.bytes > region.size_bytes() ||
      binding.offset_bytes > region.size_bytes() - binding.bytes) {
    return EINVAL;
  }
  // Keep the region before posting: the device may execute the bind at any time after that.
  window.state_->keep(region.state_);
  const unsigned rights = static_cast<unsigned>(binding.access) & remote_rights;
  const std::uint64_t address = region.remote().address() + binding.offset_bytes;
  return window.post_bind(
      raw(), {id, static_cast<unsigned>(flags), {region.raw(), address, binding.bytes, rights}});
}

// A type 1 window is unbound by a bind of no bytes, one of type 2 by a local invalidate. The bind
// names the region all the same, because providers of rdma-core read its keys.
int QueuePair::post_unbind(MemoryWindow& window, std::uint64_t id, SendFlags flags) const {
  if (window.type() == IBV_MW_TYPE_1) {
    const detail::MemoryState* region = window.state_->bound_to();
    if (!region) return EINVAL;
    return window.post_bind(raw(), {id, static_cast<unsigned>(flags), {region->raw, 0, 0, 0}});
  }
  const std::uint32_t key = window.remote_.rkey();
  // The key is kept without a range: the next bind increments it.
  const int failed = post_invalidate(key, id, flags);
  if (failed == 0) window.remote_ = {0, 0, key};
  return failed;
}

// IBV_WR_LOCAL_INV, ibv_post_send(3): sends nothing to the peer.
int QueuePair::post_invalidate(std::uint32_t rkey, std::uint64_t id, SendFlags flags) const {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_LOCAL_INV;
  request.send_flags = static_cast<unsigned>(flags);
  request.invalidate_rkey = rkey;
  return post(request);
}

}  // namespace weft::verbs
