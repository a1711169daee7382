// KeptSlice: a slice that owns a share of its memory region.
#pragma once

#include <memory>
#include <utility>

#include "weft/verbs/slice.hpp"

namespace weft::verbs {

namespace detail {
struct MemoryState;
}

// A part of a local memory region that keeps the region: until the last copy is destroyed, the
// region stays registered, and memory that the region has allocated is not freed, also where the
// MemoryRegion itself is destroyed. From MemoryRegion::keep(). An Operation holds one until its
// request has completed. Copies may be used in different threads.
class KeptSlice {
 public:
  // No bytes: for messages without content.
  KeptSlice() = default;
  // A slice that keeps nothing: its region must live until the completion, as with LocalSlice.
  [[nodiscard]] static KeptSlice borrowed(const LocalSlice& slice) {
    KeptSlice made;
    made.slice_ = slice;
    return made;
  }
  // The same slice, which also keeps `memory`: for a region of ProtectionDomain::register_memory(),
  // which does not own its bytes. The region is deregistered first.
  [[nodiscard]] KeptSlice with(std::shared_ptr<const void> memory) const {
    KeptSlice made = *this;
    made.memory_ = std::move(memory);
    return made;
  }

  // The slice for a work request. It keeps nothing itself.
  [[nodiscard]] const LocalSlice& slice() const { return slice_; }
  // The number of bytes.
  [[nodiscard]] std::uint32_t size_bytes() const { return slice_.size_bytes(); }

 private:
  friend class MemoryRegion;
  KeptSlice(const LocalSlice& slice, std::shared_ptr<detail::MemoryState> region)
      : slice_(slice), region_(std::move(region)) {}

  LocalSlice slice_;
  // Destroyed in this order: the region, then its memory.
  std::shared_ptr<const void> memory_;
  std::shared_ptr<detail::MemoryState> region_;
};

}  // namespace weft::verbs
