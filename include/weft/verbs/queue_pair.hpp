// Queue pairs: ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3), ibv_post_recv(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "weft/counters.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/data_path.hpp"
#include "weft/verbs/endpoint.hpp"
#include "weft/verbs/memory_window.hpp"
#include "weft/verbs/post.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

class Context;

namespace detail {
struct QueuePairState;
}

// A queue pair. Thread-safe: any number of threads may post, modify and query at once. The post_
// calls return 0 or the errno of the man page: ENOMEM if the queue is full, EINVAL for a request
// that the state or type of the queue pair does not allow. Memory and address handles of a request
// must live until its completion.
class QueuePair {
 public:
  QueuePair(QueuePair&&) noexcept = default;
  QueuePair& operator=(QueuePair&&) noexcept = default;

  // The number, by which peers and completions name the queue pair.
  [[nodiscard]] std::uint32_t number() const { return raw()->qp_num; }

  // Sends one slice, or gathers a list of slices.
  [[nodiscard, gnu::always_inline]] int post_send(std::span<const LocalSlice> from,
                                                  std::uint64_t id,
                                                  SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_SEND, from, id, flags);
    return post(request);
  }
  [[nodiscard, gnu::always_inline]] int post_send(const LocalSlice& from, std::uint64_t id,
                                                  SendFlags flags = SendFlags::signaled) const {
    return post_send(std::span(&from, 1), id, flags);
  }
  // `immediate` is in host byte order; the receiver gets it from Completion::immediate().
  [[nodiscard]] int post_send_with_immediate(const LocalSlice& from, std::uint32_t immediate,
                                             std::uint64_t id,
                                             SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_SEND_WITH_IMM, std::span(&from, 1), id, flags);
    request.imm_data = htonl(immediate);
    return post(request);
  }
  // Sends, and invalidates on arrival `rkey`, which the peer has advertised before, at the peer.
  [[nodiscard]] int post_send_with_invalidate(const LocalSlice& from, std::uint32_t rkey,
                                              std::uint64_t id,
                                              SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_SEND_WITH_INV, std::span(&from, 1), id, flags);
    request.invalidate_rkey = rkey;
    return post(request);
  }
  // Sends a datagram.
  [[nodiscard]] int post_send_to(const DatagramTarget& target, const LocalSlice& from,
                                 std::uint64_t id, SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_SEND, std::span(&from, 1), id, flags);
    detail::set_target(request, target);
    return post(request);
  }

  // Posts a receive, into one slice or scattered into several.
  [[nodiscard, gnu::always_inline]] int post_receive(std::span<const LocalSlice> into,
                                                     std::uint64_t id) const {
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(into.data()));
    request.num_sge = static_cast<int>(into.size());
    ibv_recv_wr* bad = nullptr;
    return detail::errno_of(ibv_post_recv(raw_.get(), &request, &bad));
  }
  // Posts a receive into one slice.
  [[nodiscard, gnu::always_inline]] int post_receive(const LocalSlice& into,
                                                     std::uint64_t id) const {
    return post_receive(std::span(&into, 1), id);
  }

  // Return EMSGSIZE if the slices are longer than the remote one, because the peer would reject the
  // request.
  [[nodiscard, gnu::always_inline]] int post_write(std::span<const LocalSlice> from,
                                                   const RemoteSlice& to, std::uint64_t id,
                                                   SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_RDMA_WRITE, from, id, flags);
    return post_remote(request, to);
  }
  [[nodiscard, gnu::always_inline]] int post_write(const LocalSlice& from, const RemoteSlice& to,
                                                   std::uint64_t id,
                                                   SendFlags flags = SendFlags::signaled) const {
    return post_write(std::span(&from, 1), to, id, flags);
  }
  // The same, and completes a receive of the peer with the immediate, in host byte order.
  [[nodiscard]] int post_write_with_immediate(const LocalSlice& from, const RemoteSlice& to,
                                              std::uint32_t immediate, std::uint64_t id,
                                              SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_RDMA_WRITE_WITH_IMM, std::span(&from, 1), id, flags);
    request.imm_data = htonl(immediate);
    return post_remote(request, to);
  }
  // Reads from the peer into one slice, or into several. EMSGSIZE as for writes.
  [[nodiscard, gnu::always_inline]] int post_read(std::span<const LocalSlice> into,
                                                  const RemoteSlice& from, std::uint64_t id,
                                                  SendFlags flags = SendFlags::signaled) const {
    auto request = detail::send_request(IBV_WR_RDMA_READ, into, id, flags);
    return post_remote(request, from);
  }
  // Reads from the peer into one slice.
  [[nodiscard, gnu::always_inline]] int post_read(const LocalSlice& into, const RemoteSlice& from,
                                                  std::uint64_t id,
                                                  SendFlags flags = SendFlags::signaled) const {
    return post_read(std::span(&into, 1), from, id, flags);
  }
  // Operate on the eight aligned bytes at the start of `target`; the previous value is stored in
  // `before`.
  [[nodiscard]] int post_fetch_and_add(const LocalSlice& before, const RemoteSlice& target,
                                       std::uint64_t addend, std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled) const {
    auto request =
        detail::send_request(IBV_WR_ATOMIC_FETCH_AND_ADD, std::span(&before, 1), id, flags);
    request.wr.atomic = {target.address(), addend, 0, target.rkey()};
    return post(request);
  }
  // Stores `desired` where the previous value is `expected`.
  [[nodiscard]] int post_compare_and_swap(const LocalSlice& before, const RemoteSlice& target,
                                          std::uint64_t expected, std::uint64_t desired,
                                          std::uint64_t id,
                                          SendFlags flags = SendFlags::signaled) const {
    auto request =
        detail::send_request(IBV_WR_ATOMIC_CMP_AND_SWP, std::span(&before, 1), id, flags);
    request.wr.atomic = {target.address(), expected, desired, target.rkey()};
    return post(request);
  }

  // Bind and unbind grant and revoke access to a part of a region, in order with the other
  // requests; nothing is sent to the peer. EINVAL if the part is not within the region. If the
  // region does not allow it, or a window of type 2 is still bound, the completion reports
  // IBV_WC_MW_BIND_ERR.
  [[nodiscard]] WEFT_API int post_bind(MemoryWindow& window, const WindowBinding& binding,
                                       std::uint64_t id,
                                       SendFlags flags = SendFlags::signaled) const;
  // Revokes what the window has granted.
  [[nodiscard]] WEFT_API int post_unbind(MemoryWindow& window, std::uint64_t id,
                                         SendFlags flags = SendFlags::signaled) const;
  // Unbinds a window of type 2 by its rkey.
  [[nodiscard]] WEFT_API int post_invalidate(std::uint32_t rkey, std::uint64_t id,
                                             SendFlags flags = SendFlags::signaled) const;

  // Start a batch of requests that are posted with one doorbell.
  template <std::size_t capacity = 32>
  [[nodiscard]] Batch<capacity> batch() const {
    return Batch<capacity>(raw());
  }
  // The same for receives.
  template <std::size_t capacity = 32>
  [[nodiscard]] ReceiveBatch<capacity> receive_batch() const {
    return ReceiveBatch<capacity>(raw());
  }

  // Changes the state or attributes, ibv_modify_qp(3). Throws Error; for an invalid transition the
  // message names both states, for wrong attributes those that are missing and those that are not
  // allowed.
  WEFT_API void modify(const ibv_qp_attr& attributes, int mask) const;
  // Changes to IBV_QPS_ERR, which flushes all posted requests. Throws Error, in RESET as well,
  // where nothing is posted and InfiniBand and RoCE know no such change.
  WEFT_API void fail() const;
  // The result of ibv_query_qp(3).
  struct Attributes {
    ibv_qp_attr current;
    ibv_qp_init_attr initial;
  };
  // Joins a multicast group, ibv_attach_mcast(3): datagrams to the group arrive at this queue pair.
  // Throws Error.
  WEFT_API void join_group(const Gid& group) const;
  // Leaves the group, ibv_detach_mcast(3). Throws Error.
  WEFT_API void leave_group(const Gid& group) const;

  // ibv_query_qp(3). Throws Error.
  [[nodiscard]] WEFT_API Attributes query(int mask) const;
  // The state now, which the device may have changed. Throws Error.
  [[nodiscard]] WEFT_API ibv_qp_state state() const;

  // The device's counters of this queue pair. Throws Error(EOPNOTSUPP) on the system's devices.
  [[nodiscard]] WEFT_API QueuePairCounters counters() const;

  // The context that the queue pair was made from.
  [[nodiscard]] WEFT_API Context context() const;
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_qp* raw() const {
    static_cast<void>(state_.get());
    return raw_.get();
  }

 private:
  friend class Operations;
  friend class PreparedQueuePair;
  friend class QueuePairBuilder;
  friend class Id;
  explicit QueuePair(std::shared_ptr<detail::QueuePairState> state);
  [[nodiscard]] bool lacks_gid(const ibv_ah_attr& peer) const;

  // Forced inline, because otherwise each call would pass its request on the stack.
  [[nodiscard, gnu::always_inline]] int post(ibv_send_wr& request) const {
    ibv_send_wr* bad = nullptr;
    return detail::errno_of(ibv_post_send(raw_.get(), &request, &bad));
  }
  [[nodiscard, gnu::always_inline]] int post_remote(ibv_send_wr& request,
                                                    const RemoteSlice& remote) const {
    detail::set_remote(request, remote);
    std::uint64_t bytes = 0;
    for (int i = 0; i < request.num_sge; ++i) bytes += request.sg_list[i].length;
    return bytes > remote.size_bytes() ? EMSGSIZE : post(request);
  }

  weft::detail::Held<std::shared_ptr<detail::QueuePairState>, "weft::verbs::QueuePair"> state_;
  detail::DataPathPointer<ibv_qp> raw_;
};

}  // namespace weft::verbs
