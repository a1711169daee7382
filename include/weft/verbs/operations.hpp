// Requests that cannot outlive their memory: Operations posts them, and each Operation holds its
// slice, and with it the region, until the device is done with the request.
//
//   Operations operations(context);
//   auto queue_pair = domain.queue_pair(operations.queue(), operations.queue()). … ;
//   const Operation sent = operations.send(queue_pair, domain.allocate<char>(64).keep());
//   const auto completion = operations.wait(sent, 10s);
//
// It is beside the post_ calls of QueuePair, which cost less: an Operation costs an allocation, a
// search in a table and a lock. AsyncOperations has the same calls as coroutines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/handle.hpp"
#include "weft/verbs/completion.hpp"
#include "weft/verbs/context.hpp"
#include "weft/verbs/kept_slice.hpp"
#include "weft/verbs/queue_pair.hpp"

namespace weft::verbs {

namespace detail {
class OperationsCore;
struct OperationRecord;
}  // namespace detail

// A request that Operations has posted. Copies refer to the same request. Destroying it does not
// affect the request, which keeps its memory until it has completed. Thread-safe.
class Operation {
 public:
  // No request: it converts to false.
  Operation() = default;
  // True if the request was posted. Otherwise error_number() is the reason: ENOMEM if the queue
  // pair or the completion queue is full, EMSGSIZE if the slice is longer than the remote one,
  // EINVAL for a request that the queue pair does not allow.
  [[nodiscard]] explicit operator bool() const { return record_ != nullptr; }
  // Why the request was not posted; 0 if it was.
  [[nodiscard]] int error_number() const { return error_; }
  // Whether the device is done with the request: its completion is there, or its queue pair was
  // destroyed, which leaves it without one.
  [[nodiscard]] WEFT_API bool settled() const;
  // The completion, once Operations has polled it.
  [[nodiscard]] WEFT_API std::optional<Completion> completion() const;

 private:
  friend class detail::OperationsCore;
  friend class Operations;
  explicit Operation(std::shared_ptr<detail::OperationRecord> record)
      : record_(std::move(record)) {}
  explicit Operation(int error) : error_(error) {}

  std::shared_ptr<detail::OperationRecord> record_;
  int error_ = 0;
};

// A completion queue, and the requests whose completions it will get. Thread-safe, except for
// moving and destroying. For any number of queue pairs, in both directions.
//
// The destructor fails the queue pairs (IBV_QPS_ERR) that still have requests of it, and waits
// until the device has flushed these: no request keeps running whose memory is freed.
class Operations {
 public:
  // Makes a completion queue for `entries` requests that are under way at a time. Throws Error.
  WEFT_API explicit Operations(const Context& context, int entries = 256);
  WEFT_API Operations(Operations&&) noexcept;
  WEFT_API Operations& operator=(Operations&&) noexcept;
  WEFT_API ~Operations();

  // To build queue pairs with. Must be polled by this object only. Lives as long as this object,
  // and as the queue pairs that were built with it.
  [[nodiscard]] WEFT_API const CompletionQueue& queue() const;

  // Post a request; the calls of the same names, with post_ before it, in QueuePair describe them.
  // The flags `fence`, `solicited` and `copied` may be given; each request is signaled.
  WEFT_API Operation send(const QueuePair& queue_pair, KeptSlice from,
                          SendFlags flags = SendFlags::none);
  // QueuePair::post_send_with_immediate().
  WEFT_API Operation send_with_immediate(const QueuePair& queue_pair, KeptSlice from,
                                         std::uint32_t immediate,
                                         SendFlags flags = SendFlags::none);
  // QueuePair::post_receive().
  WEFT_API Operation receive(const QueuePair& queue_pair, KeptSlice into);
  // QueuePair::post_write().
  WEFT_API Operation write(const QueuePair& queue_pair, KeptSlice from, const RemoteSlice& to,
                           SendFlags flags = SendFlags::none);
  // QueuePair::post_write_with_immediate().
  WEFT_API Operation write_with_immediate(const QueuePair& queue_pair, KeptSlice from,
                                          const RemoteSlice& to, std::uint32_t immediate,
                                          SendFlags flags = SendFlags::none);
  // QueuePair::post_read().
  WEFT_API Operation read(const QueuePair& queue_pair, KeptSlice into, const RemoteSlice& from,
                          SendFlags flags = SendFlags::none);
  // QueuePair::post_fetch_and_add().
  WEFT_API Operation fetch_and_add(const QueuePair& queue_pair, KeptSlice before,
                                   const RemoteSlice& target, std::uint64_t addend,
                                   SendFlags flags = SendFlags::none);
  // QueuePair::post_compare_and_swap().
  WEFT_API Operation compare_and_swap(const QueuePair& queue_pair, KeptSlice before,
                                      const RemoteSlice& target, std::uint64_t expected,
                                      std::uint64_t desired, SendFlags flags = SendFlags::none);

  // Takes what has completed, without blocking; returns the number of completions.
  WEFT_API std::size_t poll();
  // Waits for the completion of a request of this object; nothing at the deadline or after a stop
  // request. Its queue pair must live until then. Several threads may wait, also for one request.
  // Throws Error if waiting fails, and Error(EINVAL) for an Operation that was not posted.
  [[nodiscard]] WEFT_API std::optional<Completion> wait(const Operation& operation,
                                                        Deadline deadline,
                                                        std::stop_token stop = {});
  // The number of requests whose completion was not polled yet.
  [[nodiscard]] WEFT_API std::size_t under_way() const;
  // The next completion of a request that was posted to a queue pair directly, in their order;
  // nothing if none was polled. They are kept until they are taken.
  [[nodiscard]] WEFT_API std::optional<Completion> take_other();

 private:
  friend class AsyncOperations;
  template <typename Post>
  Operation post(const QueuePair& queue_pair, KeptSlice slice, const Post& post);

  weft::detail::Held<std::shared_ptr<detail::OperationsCore>, "weft::verbs::Operations"> core_;
};

}  // namespace weft::verbs
