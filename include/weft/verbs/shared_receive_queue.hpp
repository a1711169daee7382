// Shared receive queues, ibv_create_srq(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/data_path.hpp"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

namespace detail {
struct SharedReceiveQueueState;
}

// Options of ibv_create_srq(3).
struct SharedReceiveQueueOptions {
  std::uint32_t receives = 1;
  std::uint32_t slices = 1;  // per receive
  std::uint32_t limit = 0;   // IBV_EVENT_SRQ_LIMIT_REACHED is raised once below it; 0: never
};

// Thread-safe. Queue pairs keep their shared receive queue alive, and the queue its protection
// domain.
class SharedReceiveQueue {
 public:
  SharedReceiveQueue(SharedReceiveQueue&&) noexcept = default;
  SharedReceiveQueue& operator=(SharedReceiveQueue&&) noexcept = default;

  // Posts a receive. Returns 0, or the errno of ibv_post_srq_recv(3): ENOMEM if the queue is full.
  // The memory must live until the completion.
  [[nodiscard]] int post_receive(std::span<const LocalSlice> into, std::uint64_t id) const {
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(into.data()));
    request.num_sge = static_cast<int>(into.size());
    ibv_recv_wr* bad = nullptr;
    return detail::errno_of(ibv_post_srq_recv(raw_.get(), &request, &bad));
  }
  [[nodiscard]] int post_receive(const LocalSlice& into, std::uint64_t id) const {
    return post_receive(std::span(&into, 1), id);
  }

  // Arms the limit event, ibv_modify_srq(3). Throws Error.
  WEFT_API void set_limit(std::uint32_t limit) const;
  // Changes the capacity, ibv_modify_srq(3). Throws Error.
  WEFT_API void resize(std::uint32_t receives) const;
  // ibv_query_srq(3). Throws Error.
  [[nodiscard]] WEFT_API ibv_srq_attr query() const;
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_srq* raw() const {
    static_cast<void>(state_.get());
    return raw_.get();
  }

 private:
  friend class ProtectionDomain;
  friend class QueuePairBuilder;
  explicit SharedReceiveQueue(std::shared_ptr<detail::SharedReceiveQueueState> state);

  weft::detail::Held<std::shared_ptr<detail::SharedReceiveQueueState>,
                     "weft::verbs::SharedReceiveQueue">
      state_;
  detail::DataPathPointer<ibv_srq> raw_;
};

}  // namespace weft::verbs
