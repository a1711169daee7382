// Completion queues and what they hold.
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

namespace weft::verbs {

namespace detail {
struct ChannelState;
struct CompletionQueueState;
}  // namespace detail

// A status in words, as ibv_wc_status_str(3) has them.
[[nodiscard]] WEFT_API std::string_view status_name(ibv_wc_status status);

// A work completion: an ibv_wc with names. Where it is not ok(), only id(), status(),
// queue_pair_number() and vendor_error() mean anything.
class Completion {
 public:
  [[nodiscard]] std::uint64_t id() const { return raw_.wr_id; }
  [[nodiscard]] bool ok() const { return raw_.status == IBV_WC_SUCCESS; }
  [[nodiscard]] ibv_wc_status status() const { return raw_.status; }
  [[nodiscard]] std::string_view status_name() const { return verbs::status_name(raw_.status); }
  [[nodiscard]] std::uint32_t vendor_error() const { return raw_.vendor_err; }
  [[nodiscard]] ibv_wc_opcode opcode() const { return raw_.opcode; }
  [[nodiscard]] bool is_receive() const { return (raw_.opcode & IBV_WC_RECV) != 0; }
  // Of a receive or a read.
  [[nodiscard]] std::uint32_t size_bytes() const { return raw_.byte_len; }
  // In host order; nothing where none came.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const {
    if (!ok() || (raw_.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return ntohl(raw_.imm_data);
  }
  // The rkey that a send with invalidate has taken away here.
  [[nodiscard]] std::optional<std::uint32_t> invalidated_rkey() const {
    if (!ok() || (raw_.wc_flags & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return raw_.invalidated_rkey;
  }
  [[nodiscard]] std::uint32_t queue_pair_number() const { return raw_.qp_num; }
  // Of a datagram: who sent it, and whether a GRH stands in the first 40 bytes of the buffer.
  [[nodiscard]] std::uint32_t source_queue_pair() const { return raw_.src_qp; }
  [[nodiscard]] bool has_grh() const { return (raw_.wc_flags & IBV_WC_GRH) != 0; }
  [[nodiscard]] const ibv_wc& raw() const { return raw_; }

 private:
  ibv_wc raw_;
};

static_assert(sizeof(Completion) == sizeof(ibv_wc), "a queue is polled straight into completions");

// Wakes whoever waits for completions: ibv_create_comp_channel(3). One channel may serve many
// queues. Thread-safe; of several waiters each event goes to one.
class CompletionChannel {
 public:
  CompletionChannel(CompletionChannel&&) noexcept = default;
  CompletionChannel& operator=(CompletionChannel&&) noexcept = default;

  // Readable while an event waits. Non-blocking.
  [[nodiscard]] int fd() const { return raw_->fd; }
  // The next event: the user context of the queue it is about (CompletionQueueOptions). Nothing
  // where none came until the deadline. Interrupted waits go on.
  [[nodiscard]] WEFT_API std::optional<void*> wait(Deadline deadline) const;
  [[nodiscard]] ibv_comp_channel* raw() const { return raw_; }

 private:
  friend class Context;
  friend class CompletionQueue;
  explicit CompletionChannel(std::shared_ptr<detail::ChannelState> state);

  std::shared_ptr<detail::ChannelState> state_;
  ibv_comp_channel* raw_;
};

// See ibv_create_cq(3).
struct CompletionQueueOptions {
  const CompletionChannel* channel = nullptr;  // used during the call only
  int vector = 0;
  void* user_context = nullptr;  // what CompletionChannel::wait() answers
};

// ibv_create_cq(3). Thread-safe. Queue pairs keep the queues that they use.
class CompletionQueue {
 public:
  CompletionQueue(CompletionQueue&&) noexcept = default;
  CompletionQueue& operator=(CompletionQueue&&) noexcept = default;

  // Takes what is there, at most as many as `into` has room for, and returns that part of it. A
  // failed poll, which no healthy device has, is the same as an empty one.
  [[nodiscard, gnu::always_inline]] std::span<Completion> poll(std::span<Completion> into) const {
    const int got =
        ibv_poll_cq(raw_, static_cast<int>(into.size()), reinterpret_cast<ibv_wc*>(into.data()));
    return into.first(got < 0 ? 0 : static_cast<std::size_t>(got));
  }

  // Calls `visit` with each completion that is there; returns how many there were. Each is lent for
  // the call only.
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

  // Polls until there is at least one, or the deadline has passed: then the part is empty. Sleeps
  // on the channel where the queue has one (which then must have no other waiter), else spins.
  // Throws Error where waiting fails.
  [[nodiscard]] WEFT_API std::span<Completion> wait(std::span<Completion> into,
                                                    Deadline deadline) const;

  // ibv_req_notify_cq(3): the next completion (or the next solicited one) raises an event.
  // Completions that are there already do not: arm, poll, then wait. Throws Error.
  WEFT_API void arm(bool solicited_only = false) const;
  // ibv_resize_cq(3). Throws Error.
  WEFT_API void resize(int entries) const;

  // What the device has counted. Throws Error(EOPNOTSUPP) on the system's devices.
  [[nodiscard]] WEFT_API CompletionQueueCounters counters() const;

  [[nodiscard]] int capacity() const { return raw_->cqe; }
  [[nodiscard]] ibv_cq* raw() const { return raw_; }

 private:
  friend class Context;
  friend class QueuePairBuilder;
  friend class Id;
  explicit CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state);

  std::shared_ptr<detail::CompletionQueueState> state_;
  ibv_cq* raw_;
};

}  // namespace weft::verbs
