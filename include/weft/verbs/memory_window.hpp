// Memory windows: rights for a peer to a part of a region, given and taken away by work requests.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/export.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

namespace detail {
struct MemoryWindowState;
}

// What a window opens to the peer: so many bytes of a region that was registered with
// Access::bindable, and in the window's domain. Of `access` only the remote rights count.
struct WindowBinding {
  const MemoryRegion& region;
  std::size_t offset_bytes = 0;
  std::size_t bytes = 0;
  Access access = Access::remote_read_write;
};

// ibv_alloc_mw(3), ibv_bind_mw(3). Bound by QueuePair::post_bind(), which needs it for itself:
// one thread at a time. A window keeps every region that it was bound to; the user's own memory
// must live as long as both. Destroying it takes the peer's rights away.
class MemoryWindow {
 public:
  MemoryWindow(MemoryWindow&&) noexcept = default;
  MemoryWindow& operator=(MemoryWindow&&) noexcept = default;

  // Of type 1 it serves all queue pairs of its domain; of type 2 the one that has bound it, and
  // either side of that one may invalidate it.
  [[nodiscard]] ibv_mw_type type() const { return raw_->type; }
  // What the last bind that was posted opens, to be told to the peer once that bind is done. Of no
  // bytes before, and after QueuePair::post_unbind().
  [[nodiscard]] const RemoteSlice& remote() const { return remote_; }
  [[nodiscard]] ibv_mw* raw() const { return raw_; }

 private:
  friend class ProtectionDomain;
  friend class QueuePair;
  explicit MemoryWindow(std::shared_ptr<detail::MemoryWindowState> state);
  int post_bind(ibv_qp* queue_pair, const ibv_mw_bind& binding);
  int post_bind_of_type_1(ibv_qp* queue_pair, const ibv_mw_bind& binding);
  int post_bind_of_type_2(ibv_qp* queue_pair, const ibv_mw_bind& binding);

  std::shared_ptr<detail::MemoryWindowState> state_;
  ibv_mw* raw_;
  RemoteSlice remote_;
};

}  // namespace weft::verbs
