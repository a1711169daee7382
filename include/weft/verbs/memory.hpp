// Registered memory: ibv_reg_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "weft/counters.hpp"
#include "weft/export.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

namespace detail {
struct MemoryState;
}

// Who may do what with a region. Local reading is always allowed.
enum class Access : unsigned {
  local_read_only = 0,
  local = IBV_ACCESS_LOCAL_WRITE,
  remote_read = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
  remote_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
  remote_read_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
  all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
        IBV_ACCESS_REMOTE_ATOMIC,
  // To be combined with others: memory windows may open parts of it; pages need not be there before
  // they are used.
  bindable = IBV_ACCESS_MW_BIND,
  on_demand = IBV_ACCESS_ON_DEMAND,
};
[[nodiscard]] constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

// A region of bytes. It must outlive every request that was posted with a slice of it, and every
// access by a peer that was told of it: deregistering waits for placements that are under way, and
// refuses those that come later. Thread-safe; the bytes are the user's to guard.
class MemoryRegion {
 public:
  MemoryRegion(MemoryRegion&&) noexcept = default;
  MemoryRegion& operator=(MemoryRegion&&) noexcept = default;

  // None of a dma-buf, whose bytes the processor does not see.
  [[nodiscard]] std::span<std::byte> bytes() const {
    return begin_ ? std::span(begin_, raw_->length) : std::span<std::byte>();
  }
  [[nodiscard]] std::size_t size_bytes() const { return raw_->length; }
  [[nodiscard]] std::uint32_t lkey() const { return raw_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const { return raw_->rkey; }

  // What peers have done here. Throws Error(EOPNOTSUPP) on the system's devices.
  [[nodiscard]] WEFT_API MemoryRegionCounters counters() const;

  // A part to post. Throws std::out_of_range where it is not within the region, or longer than a
  // slice can be (4 GiB less one byte).
  [[nodiscard]] LocalSlice slice(std::size_t offset_bytes, std::size_t bytes) const {
    if (bytes > raw_->length || offset_bytes > raw_->length - bytes || bytes > 0xFFFFFFFF) {
      out_of_range(offset_bytes, bytes);
    }
    return {address_ + offset_bytes, static_cast<std::uint32_t>(bytes), raw_->lkey};
  }
  [[nodiscard]] LocalSlice slice() const { return slice(0, raw_->length); }
  // What to tell a peer that shall write or read here, for which the region must have been
  // registered.
  [[nodiscard]] RemoteSlice remote() const { return {address_, raw_->length, raw_->rkey}; }

  [[nodiscard]] ibv_mr* raw() const { return raw_; }

 protected:
  friend class ProtectionDomain;
  friend class QueuePair;
  WEFT_API explicit MemoryRegion(std::shared_ptr<detail::MemoryState> state);

 private:
  [[noreturn]] WEFT_API void out_of_range(std::size_t offset_bytes, std::size_t bytes) const;

  std::shared_ptr<detail::MemoryState> state_;
  ibv_mr* raw_;
  std::byte* begin_;
  std::uint64_t address_;
};

// A region of elements, whose slices are counted in elements.
template <typename T>
class TypedRegion : public MemoryRegion {
  static_assert(std::is_trivially_copyable_v<T>, "the device copies bytes");

 public:
  explicit TypedRegion(MemoryRegion&& region) : MemoryRegion(std::move(region)) {}

  [[nodiscard]] std::span<T> elements() const {
    return {reinterpret_cast<T*>(bytes().data()), size_bytes() / sizeof(T)};
  }
  [[nodiscard]] T& operator[](std::size_t index) const { return elements()[index]; }
  [[nodiscard]] std::size_t size() const { return size_bytes() / sizeof(T); }

  [[nodiscard]] LocalSlice slice(std::size_t first, std::size_t count) const {
    if (count > size() || first > size() - count) {
      throw std::out_of_range("slice beyond the end of a memory region");
    }
    return MemoryRegion::slice(first * sizeof(T), count * sizeof(T));
  }
  [[nodiscard]] LocalSlice slice() const { return MemoryRegion::slice(); }
};

}  // namespace weft::verbs
