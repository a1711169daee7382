// Protection domains, ibv_alloc_pd(3): memory and queue pairs work together only within one domain.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <ranges>
#include <span>
#include <type_traits>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/address_handle.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/memory_window.hpp"
#include "weft/verbs/shared_receive_queue.hpp"

namespace weft::verbs {

class Completion;
class CompletionQueue;
class Context;
class QueuePairBuilder;

namespace detail {
struct DomainState;
}

// Thread-safe. Every object that is made from a domain keeps it alive. All calls throw Error.
class ProtectionDomain {
 public:
  ProtectionDomain(ProtectionDomain&&) noexcept = default;
  ProtectionDomain& operator=(ProtectionDomain&&) noexcept = default;

  // Registers `count` zero-initialised elements that the region owns. EINVAL if `count` is 0.
  template <typename T>
  [[nodiscard]] TypedRegion<T> allocate(std::size_t count, Access access = Access::local) const {
    return TypedRegion<T>(allocate_bytes(count, sizeof(T), access));
  }
  // The same in memory of a sealed file (memfd_create(2)), which the embedded devices of peers on
  // this host map as well: they write, read and make atomics there by plain loads, stores and
  // processor atomics, without a system call. Ordinary memory where there are no such files, or on
  // the system's devices. After fork(2), parent and child share it.
  template <typename T>
  [[nodiscard]] TypedRegion<T> allocate_shared(std::size_t count,
                                               Access access = Access::local) const {
    return TypedRegion<T>(allocate_shared_bytes(count, sizeof(T), access));
  }
  // Registers the user's memory, ibv_reg_mr(3): a vector, an array, a span, or any other range in
  // one piece. It must live, at the same place, until the region is destroyed. EINVAL if it is
  // empty.
  template <RegistrableRange Range>
  requires(!std::is_const_v<ElementOf<Range>>)
      [[nodiscard]] TypedRegion<ElementOf<Range>> register_memory(
          Range&& memory, Access access = Access::local) const {
    const std::span elements(std::ranges::data(memory), std::ranges::size(memory));
    return TypedRegion<ElementOf<Range>>(register_bytes(std::as_writable_bytes(elements), access));
  }
  // The same for memory that the device may only read: EINVAL for an access that includes writing.
  template <RegistrableRange Range>
  requires std::is_const_v<ElementOf<Range>>
  [[nodiscard]] TypedRegion<ElementOf<Range>> register_memory(
      Range&& memory, Access access = Access::local_read_only) const {
    const std::span elements(std::ranges::data(memory), std::ranges::size(memory));
    return TypedRegion<ElementOf<Range>>(register_const_bytes(std::as_bytes(elements), access));
  }
  // Registers memory of another device by the descriptor of a dma-buf, ibv_reg_dmabuf_mr(3). The
  // descriptor may be closed afterwards. Requests and peers address the first byte as `iova`.
  // Error(EOPNOTSUPP) if the device has no support; the embedded device registers files of
  // memfd_create(2) that have the seal F_SEAL_SHRINK (as allocate_shared() does), and nothing else.
  [[nodiscard]] WEFT_API MemoryRegion register_dmabuf(int fd, std::uint64_t offset_bytes,
                                                      std::size_t bytes, std::uint64_t iova,
                                                      Access access = Access::local) const;
  // Asks the device to fetch pages of regions with Access::on_demand before their use,
  // ibv_advise_mr(3). By default it is done when the call returns.
  WEFT_API void advise(ibv_advise_mr_advice advice, std::span<const LocalSlice> slices,
                       std::uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) const;
  // Allocates a memory window, ibv_alloc_mw(3). It grants no access before it is bound.
  [[nodiscard]] WEFT_API MemoryWindow allocate_window(ibv_mw_type type = IBV_MW_TYPE_1) const;
  // Starts to build a queue pair of type IBV_QPT_RC, IBV_QPT_UC or IBV_QPT_UD on `port`.
  [[nodiscard]] WEFT_API QueuePairBuilder queue_pair(const CompletionQueue& send,
                                                     const CompletionQueue& receive,
                                                     ibv_qp_type type = IBV_QPT_RC,
                                                     std::uint8_t port = 1) const;
  // ibv_create_srq(3).
  [[nodiscard]] WEFT_API SharedReceiveQueue
  create_shared_receive_queue(const SharedReceiveQueueOptions& options) const;
  // ibv_create_ah(3).
  [[nodiscard]] WEFT_API AddressHandle create_address_handle(const AddressOptions& options) const;
  // Creates the address handle to answer a datagram, ibv_create_ah_from_wc(3), from its completion
  // and from the first 40 bytes of its receive buffer (the GRH).
  [[nodiscard]] WEFT_API AddressHandle reply_address(const Completion& received,
                                                     std::span<const std::uint8_t, grh_bytes> front,
                                                     std::uint8_t port = 1) const;

  // The context that the domain was made from.
  [[nodiscard]] WEFT_API Context context() const;
  // Another handle to the same domain.
  [[nodiscard]] ProtectionDomain share() const { return ProtectionDomain(state_.get()); }
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_pd* raw() const { return raw_; }

 private:
  friend class Context;
  friend class Id;
  WEFT_API explicit ProtectionDomain(std::shared_ptr<detail::DomainState> state);
  [[nodiscard]] WEFT_API MemoryRegion allocate_bytes(std::size_t count, std::size_t element_bytes,
                                                     Access access) const;
  [[nodiscard]] WEFT_API MemoryRegion allocate_shared_bytes(std::size_t count,
                                                            std::size_t element_bytes,
                                                            Access access) const;
  [[nodiscard]] WEFT_API MemoryRegion register_bytes(std::span<std::byte> memory,
                                                     Access access) const;
  [[nodiscard]] WEFT_API MemoryRegion register_const_bytes(std::span<const std::byte> memory,
                                                           Access access) const;

  weft::detail::Held<std::shared_ptr<detail::DomainState>, "weft::verbs::ProtectionDomain"> state_;
  weft::detail::Held<ibv_pd*, "weft::verbs::ProtectionDomain"> raw_;
};

}  // namespace weft::verbs
