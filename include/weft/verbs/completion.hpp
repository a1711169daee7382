// Completion queues, completion channels and work completions.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/counters.hpp"
#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/data_path.hpp"

namespace weft::verbs {

namespace detail {
struct ChannelState;
struct CompletionQueueState;
}  // namespace detail

// A status in words, as ibv_wc_status_str(3) returns it.
[[nodiscard]] WEFT_API std::string_view status_name(ibv_wc_status status);

// A work completion: an ibv_wc (ibv_poll_cq(3)) with accessors. If it is not ok(), only id(),
// status(), queue_pair_number() and vendor_error() are valid.
class Completion {
 public:
  // The id that the request was posted with.
  [[nodiscard]] std::uint64_t id() const { return raw_.wr_id; }
  // Whether the request was successful.
  [[nodiscard]] bool ok() const { return raw_.status == IBV_WC_SUCCESS; }
  // The status of verbs.
  [[nodiscard]] ibv_wc_status status() const { return raw_.status; }
  // The status in words.
  [[nodiscard]] std::string_view status_name() const { return verbs::status_name(raw_.status); }
  // On the embedded device, with IBV_WC_RETRY_EXC_ERR, the errno value with which the connection
  // was lost: ECONNRESET if the peer has closed it or was killed, ETIMEDOUT if its host is silent.
  [[nodiscard]] std::uint32_t vendor_error() const { return raw_.vendor_err; }
  // What the request was.
  [[nodiscard]] ibv_wc_opcode opcode() const { return raw_.opcode; }
  // Whether a receive has completed: by a Send, or by a Write with immediate.
  [[nodiscard]] bool is_receive() const { return (raw_.opcode & IBV_WC_RECV) != 0; }
  // The bytes received or read; valid for receives and reads.
  [[nodiscard]] std::uint32_t size_bytes() const { return raw_.byte_len; }
  // The immediate data in host byte order; nothing if the message carried none.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const {
    if (!ok() || (raw_.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return ntohl(raw_.imm_data);
  }
  // The local rkey that the peer's send with invalidate has invalidated.
  [[nodiscard]] std::optional<std::uint32_t> invalidated_rkey() const {
    if (!ok() || (raw_.wc_flags & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return raw_.invalidated_rkey;
  }
  // The queue pair of this side, which matters where several share the queue.
  [[nodiscard]] std::uint32_t queue_pair_number() const { return raw_.qp_num; }
  // For datagrams: the sender's queue pair, and whether the first 40 bytes of the buffer hold a
  // GRH.
  [[nodiscard]] std::uint32_t source_queue_pair() const { return raw_.src_qp; }
  // Whether the datagram came with a GRH.
  [[nodiscard]] bool has_grh() const { return (raw_.wc_flags & IBV_WC_GRH) != 0; }
  // The completion of verbs.
  [[nodiscard]] const ibv_wc& raw() const { return raw_; }

 private:
  ibv_wc raw_;
};

static_assert(sizeof(Completion) == sizeof(ibv_wc), "a queue is polled straight into completions");

// Wakes threads that wait for completions: ibv_create_comp_channel(3). One channel may serve many
// queues. Thread-safe; each event wakes one of the waiting threads.
class CompletionChannel {
 public:
  CompletionChannel(CompletionChannel&&) noexcept = default;
  CompletionChannel& operator=(CompletionChannel&&) noexcept = default;

  // A non-blocking descriptor that is readable while an event is pending.
  [[nodiscard]] int fd() const { return raw_->fd; }
  // Waits for the next event and returns the user context of its queue (CompletionQueueOptions).
  // Returns nothing if the deadline has passed. Continues after signals. Throws Error if waiting
  // fails.
  [[nodiscard]] WEFT_API std::optional<void*> wait(Deadline deadline) const;
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_comp_channel* raw() const { return raw_; }

 private:
  friend class Context;
  friend class CompletionQueue;
  explicit CompletionChannel(std::shared_ptr<detail::ChannelState> state);

  weft::detail::Held<std::shared_ptr<detail::ChannelState>, "weft::verbs::CompletionChannel">
      state_;
  weft::detail::Held<ibv_comp_channel*, "weft::verbs::CompletionChannel"> raw_;
};

// Options of ibv_create_cq(3).
struct CompletionQueueOptions {
  const CompletionChannel* channel = nullptr;  // used during the call only
  int vector = 0;
  void* user_context = nullptr;  // returned by CompletionChannel::wait()
};

// A completion queue, ibv_create_cq(3). Thread-safe. Queue pairs keep their completion queues
// alive, and a queue its context and channel.
class CompletionQueue {
 public:
  CompletionQueue(CompletionQueue&&) noexcept = default;
  CompletionQueue& operator=(CompletionQueue&&) noexcept = default;

  // Takes completions off the queue, at most as many as `into` has room for, and returns the filled
  // part. Never blocks. A failed poll, which no healthy device reports, returns an empty span.
  [[nodiscard, gnu::always_inline]] std::span<Completion> poll(std::span<Completion> into) const {
    const int got = ibv_poll_cq(raw_.get(), static_cast<int>(into.size()),
                                reinterpret_cast<ibv_wc*>(into.data()));
    return into.first(got < 0 ? 0 : static_cast<std::size_t>(got));
  }

  // Calls `visit` with each completion until the queue is empty; returns their number. The
  // reference is valid during the call only.
  template <typename Visitor>
  std::size_t for_each(Visitor&& visit) const {
    constexpr int batch = 16;
    Completion some[batch];
    std::size_t total = 0;
    while (true) {
      const auto got = poll(some);
      for (const Completion& completion : got) visit(completion);
      total += got.size();
      if (got.size() < batch) return total;
    }
  }

  // Polls until the queue has a completion; returns an empty span if the deadline has passed.
  // Sleeps on the channel if the queue has one (which must have no other waiter then), else spins
  // with sched_yield(2). Throws Error if waiting fails.
  [[nodiscard]] WEFT_API std::span<Completion> wait(std::span<Completion> into,
                                                    Deadline deadline) const;

  // Requests an event for the next completion (or the next solicited one), ibv_req_notify_cq(3).
  // Completions that are in the queue already raise none: arm, poll again, then wait. Throws Error.
  WEFT_API void arm(bool solicited_only = false) const;
  // Changes the capacity, ibv_resize_cq(3). Throws Error.
  WEFT_API void resize(int entries) const;

  // The device's counters of this queue. Throws Error(EOPNOTSUPP) on the system's devices.
  [[nodiscard]] WEFT_API CompletionQueueCounters counters() const;

  // How many completions the queue holds; at least as many as were asked for.
  [[nodiscard]] int capacity() const { return raw()->cqe; }
  // The object of verbs. Belongs to this one.
  [[nodiscard]] ibv_cq* raw() const {
    static_cast<void>(state_.get());
    return raw_.get();
  }

 private:
  friend class Context;
  friend class QueuePairBuilder;
  friend class Id;
  explicit CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state);

  weft::detail::Held<std::shared_ptr<detail::CompletionQueueState>, "weft::verbs::CompletionQueue">
      state_;
  detail::DataPathPointer<ibv_cq> raw_;
};

}  // namespace weft::verbs
