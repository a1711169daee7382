// Protection domains, ibv_alloc_pd(3): what belongs together.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <span>

#include "weft/export.hpp"
#include "weft/verbs/address_handle.hpp"
#include "weft/verbs/memory.hpp"
#include "weft/verbs/memory_window.hpp"
#include "weft/verbs/shared_receive_queue.hpp"

namespace weft::verbs {

class Completion;
class CompletionQueue;
class QueuePairBuilder;

namespace detail {
struct DomainState;
}

// Thread-safe. What is made from a domain keeps it. All calls throw Error.
class ProtectionDomain {
 public:
  ProtectionDomain(ProtectionDomain&&) noexcept = default;
  ProtectionDomain& operator=(ProtectionDomain&&) noexcept = default;

  // `count` elements, all zero bytes, owned by the region. EINVAL for none.
  template <typename T>
  [[nodiscard]] TypedRegion<T> allocate(std::size_t count, Access access = Access::local) const {
    return TypedRegion<T>(allocate_bytes(count, sizeof(T), access));
  }
  // The user's memory, which must live until the region is destroyed.
  template <typename T>
  [[nodiscard]] TypedRegion<T> register_memory(std::span<T> memory,
                                               Access access = Access::local) const {
    return TypedRegion<T>(register_bytes(std::as_writable_bytes(memory), access));
  }
  // Memory of another device, named by the descriptor of a dma-buf, which may be closed afterwards.
  // Requests and peers address its first byte by `iova`. ibv_reg_dmabuf_mr(3). Error(EOPNOTSUPP)
  // where the device cannot, as the embedded one.
  [[nodiscard]] WEFT_API MemoryRegion register_dmabuf(int fd, std::uint64_t offset_bytes,
                                                      std::size_t bytes, std::uint64_t iova,
                                                      Access access = Access::local) const;
  // To have the pages of regions with Access::on_demand there before they are used:
  // ibv_advise_mr(3). By default it is done on return.
  WEFT_API void advise(ibv_advise_mr_advice advice, std::span<const LocalSlice> slices,
                       std::uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) const;
  // ibv_alloc_mw(3). Opens nothing before it is bound.
  [[nodiscard]] WEFT_API MemoryWindow allocate_window(ibv_mw_type type = IBV_MW_TYPE_1) const;
  // A queue pair of type IBV_QPT_RC, IBV_QPT_UC or IBV_QPT_UD, on `port`.
  [[nodiscard]] WEFT_API QueuePairBuilder queue_pair(const CompletionQueue& send,
                                                     const CompletionQueue& receive,
                                                     ibv_qp_type type = IBV_QPT_RC,
                                                     std::uint8_t port = 1) const;
  // ibv_create_srq(3).
  [[nodiscard]] WEFT_API SharedReceiveQueue
  create_shared_receive_queue(const SharedReceiveQueueOptions& options) const;
  // ibv_create_ah(3).
  [[nodiscard]] WEFT_API AddressHandle create_address_handle(const AddressOptions& options) const;
  // Back to the sender of a datagram: its completion, and what its receive has in front of the
  // message. ibv_create_ah_from_wc(3).
  [[nodiscard]] WEFT_API AddressHandle reply_address(const Completion& received,
                                                     std::span<const std::uint8_t, grh_bytes> front,
                                                     std::uint8_t port = 1) const;

  // Another handle of the same domain.
  [[nodiscard]] ProtectionDomain share() const { return ProtectionDomain(state_); }
  [[nodiscard]] ibv_pd* raw() const { return raw_; }

 private:
  friend class Context;
  friend class Id;
  WEFT_API explicit ProtectionDomain(std::shared_ptr<detail::DomainState> state);
  [[nodiscard]] WEFT_API MemoryRegion allocate_bytes(std::size_t count, std::size_t element_bytes,
                                                     Access access) const;
  [[nodiscard]] WEFT_API MemoryRegion register_bytes(std::span<std::byte> memory,
                                                     Access access) const;

  std::shared_ptr<detail::DomainState> state_;
  ibv_pd* raw_;
};

}  // namespace weft::verbs
