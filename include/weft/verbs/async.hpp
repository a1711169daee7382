// Coroutines for queue pairs, in any event loop:
//
//   Task<> ask(Executor& executor, Operations& operations, const QueuePair& queue_pair) {
//     const AsyncOperations async(executor, operations);
//     const auto sent = co_await async.send(queue_pair, question.keep(), 10s);
//     const auto got = co_await async.receive(queue_pair, answer.keep(), 10s);
//   }
//
// The words are those of weft::connection::Async and weft::stream::Async. An Executor adapts the
// event loop; task.hpp describes how a task is started. A task does nothing before it is awaited.
// Executor, Operations and queue pairs must live until the wait has ended.
//
// Each wait has a deadline and a std::stop_token. Any thread may request the stop, and a task may
// be destroyed while it waits. The request that it has posted then goes on, and Operations keeps
// the memory until it has completed. A request that found no room was not posted.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "weft/deadline.hpp"
#include "weft/executor.hpp"
#include "weft/export.hpp"
#include "weft/task.hpp"
#include "weft/verbs/operations.hpp"

namespace weft::verbs {

// Makes coroutines of the calls of Operations. Any number of them may wait at a time. A thread that
// blocks in Operations::wait() must not be the one that runs the coroutines.
class AsyncOperations {
 public:
  // Both must outlive this object and its tasks.
  AsyncOperations(Executor& executor, Operations& operations)
      : executor_(&executor), operations_(&operations) {}

  // Each posts its request when the task is awaited; if the queue is full, as soon as there is
  // room. Returns the completion; nothing at the deadline or after a stop. Throws Error if the
  // request cannot be posted: EMSGSIZE if it exceeds the remote slice; ETIMEDOUT or ECANCELED if
  // the wait for room has ended; ENOMEM if the queue is full and nothing of Operations is under
  // way that would make room.
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> send(
      const QueuePair& queue_pair, KeptSlice from, Deadline deadline, std::stop_token stop = {},
      SendFlags flags = SendFlags::none) const;
  // Operations::send_with_immediate().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> send_with_immediate(
      const QueuePair& queue_pair, KeptSlice from, std::uint32_t immediate, Deadline deadline,
      std::stop_token stop = {}, SendFlags flags = SendFlags::none) const;
  // Operations::receive().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> receive(const QueuePair& queue_pair,
                                                                 KeptSlice into, Deadline deadline,
                                                                 std::stop_token stop = {}) const;
  // Operations::write().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> write(
      const QueuePair& queue_pair, KeptSlice from, RemoteSlice to, Deadline deadline,
      std::stop_token stop = {}, SendFlags flags = SendFlags::none) const;
  // Operations::write_with_immediate().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> write_with_immediate(
      const QueuePair& queue_pair, KeptSlice from, RemoteSlice to, std::uint32_t immediate,
      Deadline deadline, std::stop_token stop = {}, SendFlags flags = SendFlags::none) const;
  // Operations::read().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> read(
      const QueuePair& queue_pair, KeptSlice into, RemoteSlice from, Deadline deadline,
      std::stop_token stop = {}, SendFlags flags = SendFlags::none) const;
  // Operations::fetch_and_add().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> fetch_and_add(
      const QueuePair& queue_pair, KeptSlice before, RemoteSlice target, std::uint64_t addend,
      Deadline deadline, std::stop_token stop = {}, SendFlags flags = SendFlags::none) const;
  // Operations::compare_and_swap().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> compare_and_swap(
      const QueuePair& queue_pair, KeptSlice before, RemoteSlice target, std::uint64_t expected,
      std::uint64_t desired, Deadline deadline, std::stop_token stop = {},
      SendFlags flags = SendFlags::none) const;

  // Waits for a request that Operations has posted. Returns and throws as Operations::wait().
  [[nodiscard]] WEFT_API Task<std::optional<Completion>> wait(Operation operation,
                                                              Deadline deadline,
                                                              std::stop_token stop = {}) const;

 private:
  struct Parts;
  Executor* executor_;
  Operations* operations_;
};

}  // namespace weft::verbs
