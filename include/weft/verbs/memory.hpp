// Memory regions, ibv_reg_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "weft/counters.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/kept_slice.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

namespace detail {
struct MemoryState;
}

// The permissions of a region. Local reads are always allowed.
enum class Access : unsigned {
  local_read_only = 0,
  remote_read_only = IBV_ACCESS_REMOTE_READ,  // also for memory that the program cannot write
  local = IBV_ACCESS_LOCAL_WRITE,
  remote_read = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
  remote_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
  remote_read_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
  all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
        IBV_ACCESS_REMOTE_ATOMIC,
  // To combine with others: `bindable` lets memory windows grant access to parts of the region;
  // `on_demand` leaves pages unmapped until they are used.
  bindable = IBV_ACCESS_MW_BIND,
  on_demand = IBV_ACCESS_ON_DEMAND,
};
// The rights of both.
[[nodiscard]] constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

// A registered region of bytes. It must outlive every request that was posted with a slice of it,
// and every access by a peer that knows its rkey: deregistering waits for the accesses in progress
// and rejects later ones. Thread-safe; concurrent access to the bytes is up to the program.
class MemoryRegion {
 public:
  MemoryRegion(MemoryRegion&&) noexcept = default;
  MemoryRegion& operator=(MemoryRegion&&) noexcept = default;

  // The memory as bytes; empty for a dma-buf, which the processor cannot access.
  [[nodiscard]] std::span<std::byte> bytes() const {
    static_cast<void>(raw_.get());  // throws if this object is empty
    return {begin_, accessible_bytes_};
  }
  // The length of the region.
  [[nodiscard]] std::size_t size_bytes() const { return raw_->length; }
  // The key for work requests of this side.
  [[nodiscard]] std::uint32_t lkey() const { return raw_->lkey; }
  // The key for peers. A peer that has it may do what the region allows.
  [[nodiscard]] std::uint32_t rkey() const { return raw_->rkey; }

  // The device's counters of the peers' accesses. Throws Error(EOPNOTSUPP) on the system's devices.
  [[nodiscard]] WEFT_API MemoryRegionCounters counters() const;

  // A part of the region for a work request. Throws std::out_of_range if it is not within the
  // region or longer than a slice can be (4 GiB less one byte). Does not compile for a temporary:
  // the region ends before the request does.
  [[nodiscard]] LocalSlice slice(std::size_t offset_bytes, std::size_t bytes) const& {
    if (bytes > raw_->length || offset_bytes > raw_->length - bytes || bytes > 0xFFFFFFFF) {
      out_of_range(offset_bytes, bytes);
    }
    return {address_ + offset_bytes, static_cast<std::uint32_t>(bytes), raw_->lkey};
  }
  [[nodiscard]] LocalSlice slice() const& { return slice(0, raw_->length); }
  LocalSlice slice(std::size_t offset_bytes, std::size_t bytes) const&& = delete;
  LocalSlice slice() const&& = delete;
  // A slice that keeps the region registered, and its own memory allocated, until the last copy of
  // it is destroyed; so it may be taken from a temporary. Throws as slice().
  [[nodiscard]] KeptSlice keep(std::size_t offset_bytes, std::size_t bytes) const {
    return {slice(offset_bytes, bytes), state_.get()};
  }
  [[nodiscard]] KeptSlice keep() const { return keep(0, raw_->length); }
  // The region's address, length and rkey, to be sent to a peer that shall access it. The region's
  // permissions must allow that access.
  [[nodiscard]] RemoteSlice remote() const& { return {address_, raw_->length, raw_->rkey}; }
  RemoteSlice remote() const&& = delete;

  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_mr* raw() const { return raw_; }

 protected:
  friend class ProtectionDomain;
  friend class QueuePair;
  WEFT_API explicit MemoryRegion(std::shared_ptr<detail::MemoryState> state);

 private:
  [[noreturn]] WEFT_API void out_of_range(std::size_t offset_bytes, std::size_t bytes) const;

  weft::detail::Held<std::shared_ptr<detail::MemoryState>,
                     "weft::verbs::MemoryRegion or TypedRegion">
      state_;
  weft::detail::Held<ibv_mr*, "weft::verbs::MemoryRegion or TypedRegion"> raw_;
  std::byte* begin_;
  std::size_t accessible_bytes_;  // from begin_ on; 0 for a dma-buf
  std::uint64_t address_;
};

// A region of elements of type T; its slices are measured in elements. A region of const memory has
// elements of type `const T`.
template <typename T>
class TypedRegion : public MemoryRegion {
  static_assert(std::is_trivially_copyable_v<T>, "the device copies bytes");

 public:
  // A region of bytes as one of elements. A rest that is shorter than an element is left out.
  explicit TypedRegion(MemoryRegion&& region) : MemoryRegion(std::move(region)) {}

  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  // The memory as bytes, const if the elements are.
  [[nodiscard]] std::span<Byte> bytes() const { return MemoryRegion::bytes(); }
  // The memory as elements.
  [[nodiscard]] std::span<T> elements() const {
    return {reinterpret_cast<T*>(bytes().data()), size_bytes() / sizeof(T)};
  }
  // The element with this index, which is not checked.
  [[nodiscard]] T& operator[](std::size_t index) const { return elements()[index]; }
  // The number of elements.
  [[nodiscard]] std::size_t size() const { return size_bytes() / sizeof(T); }

  // A part of the region, in elements. Throws std::out_of_range if it is not within the region.
  [[nodiscard]] LocalSlice slice(std::size_t first, std::size_t count) const& {
    if (count > size() || first > size() - count) {
      throw std::out_of_range("slice beyond the end of a memory region");
    }
    return MemoryRegion::slice(first * sizeof(T), count * sizeof(T));
  }
  // The whole region.
  [[nodiscard]] LocalSlice slice() const& { return MemoryRegion::slice(); }
  // A part that keeps the region, in elements; see MemoryRegion::keep().
  [[nodiscard]] KeptSlice keep(std::size_t first, std::size_t count) const {
    static_cast<void>(slice(first, count));  // throws if it is not within the region
    return MemoryRegion::keep(first * sizeof(T), count * sizeof(T));
  }
  // The whole region, as a slice that keeps it.
  [[nodiscard]] KeptSlice keep() const { return MemoryRegion::keep(); }
  LocalSlice slice(std::size_t first, std::size_t count) const&& = delete;
  LocalSlice slice() const&& = delete;
};

// What ProtectionDomain::register_memory() takes: a range of objects in one piece of memory, which
// outlives the call. A temporary container does not.
template <typename Range>
concept RegistrableRange = std::ranges::contiguous_range<Range> &&
    std::ranges::sized_range<Range> && std::ranges::borrowed_range<Range> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<Range>>;

// The type of its elements, const if they may not be written.
template <RegistrableRange Range>
using ElementOf = std::remove_reference_t<std::ranges::range_reference_t<Range>>;

}  // namespace weft::verbs
