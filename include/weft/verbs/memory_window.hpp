// Memory windows: remote access to a part of a region, granted and revoked by work requests.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

namespace detail {
struct MemoryWindowState;
}

// The part of a region that a window grants access to. The region must have been registered with
// Access::bindable, in the domain of the window. Only the remote rights of `access` count.
struct WindowBinding {
  const MemoryRegion& region;
  std::size_t offset_bytes = 0;
  std::size_t bytes = 0;
  Access access = Access::remote_read_write;
};

// A memory window, ibv_alloc_mw(3), ibv_bind_mw(3). QueuePair::post_bind() modifies it, so use it
// in one thread at a time. A window keeps every region that it was ever bound to alive; the user's
// own memory must live as long as both. Destroying the window revokes the peer's access.
class MemoryWindow {
 public:
  MemoryWindow(MemoryWindow&&) noexcept = default;
  MemoryWindow& operator=(MemoryWindow&&) noexcept = default;

  // A window of type 1 is valid on all queue pairs of its domain; one of type 2 on the queue pair
  // that has bound it, where either side may invalidate it.
  [[nodiscard]] ibv_mw_type type() const { return raw_->type; }
  // What the last posted bind grants. Send it to the peer once the bind has completed. Empty before
  // the first bind and after QueuePair::post_unbind().
  [[nodiscard]] const RemoteSlice& remote() const {
    static_cast<void>(state_.get());
    return remote_;
  }
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_mw* raw() const { return raw_; }

 private:
  friend class ProtectionDomain;
  friend class QueuePair;
  explicit MemoryWindow(std::shared_ptr<detail::MemoryWindowState> state);
  int post_bind(ibv_qp* queue_pair, const ibv_mw_bind& binding);
  int post_bind_of_type_1(ibv_qp* queue_pair, const ibv_mw_bind& binding);
  int post_bind_of_type_2(ibv_qp* queue_pair, const ibv_mw_bind& binding);

  weft::detail::Held<std::shared_ptr<detail::MemoryWindowState>, "weft::verbs::MemoryWindow">
      state_;
  weft::detail::Held<ibv_mw*, "weft::verbs::MemoryWindow"> raw_;
  RemoteSlice remote_;
};

}  // namespace weft::verbs
