#include "weft/verbs/async.hpp"

#include <cerrno>
#include <functional>

#include "verbs/failure.h"
#include "verbs/operations_core.h"
#include "verbs/suspension.h"

namespace weft::verbs {

using detail::check_woken;
using detail::Suspension;
using detail::until;

// The coroutines of the member functions. They take copies of their arguments, because an
// AsyncOperations may be a temporary.
struct AsyncOperations::Parts {
  using Core = std::shared_ptr<detail::OperationsCore>;
  using Post = std::function<Operation()>;
  static Task<std::optional<Completion>> request(Executor& executor, Core core, Post post,
                                                 Deadline deadline, std::stop_token stop);
  static Task<std::optional<Completion>> wait(Executor& executor, Core core, Operation operation,
                                              Deadline deadline, std::stop_token stop);
};

// Waits for room while a queue is full. If nothing of Operations is under way, the queue is full of
// requests that the program has posted directly, and no completion of this object makes room.
Task<std::optional<Completion>> AsyncOperations::Parts::request(Executor& executor, Core core,
                                                                Post post, Deadline deadline,
                                                                std::stop_token stop) {
  Suspension suspension(executor, deadline, std::move(stop));
  while (true) {
    const std::uint64_t before = core->settled_count();
    const Operation operation = post();
    if (operation) {
      detail::OperationCondition condition(*core, operation);
      static_cast<void>(co_await until(suspension, condition));
      co_return operation.completion();
    }
    if (operation.error_number() != ENOMEM || core->under_way() == 0)
      detail::fail(operation.error_number(), "cannot post a request");
    detail::RoomCondition room(*core, before);
    check_woken(co_await until(suspension, room), "post a request: the queue is full");
  }
}

Task<std::optional<Completion>> AsyncOperations::Parts::wait(Executor& executor, Core core,
                                                             Operation operation, Deadline deadline,
                                                             std::stop_token stop) {
  if (!operation) detail::fail(EINVAL, "cannot wait for an operation that was not posted");
  Suspension suspension(executor, deadline, std::move(stop));
  detail::OperationCondition condition(*core, operation);
  static_cast<void>(co_await until(suspension, condition));
  co_return operation.completion();
}

Task<std::optional<Completion>> AsyncOperations::send(const QueuePair& queue_pair, KeptSlice from,
                                                      Deadline deadline, std::stop_token stop,
                                                      SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, from = std::move(from), flags] {
    return operations->send(queue_pair, from, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::send_with_immediate(
    const QueuePair& queue_pair, KeptSlice from, std::uint32_t immediate, Deadline deadline,
    std::stop_token stop, SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, from = std::move(from), immediate, flags] {
    return operations->send_with_immediate(queue_pair, from, immediate, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::receive(const QueuePair& queue_pair,
                                                         KeptSlice into, Deadline deadline,
                                                         std::stop_token stop) const {
  auto post = [operations = operations_, &queue_pair, into = std::move(into)] {
    return operations->receive(queue_pair, into);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::write(const QueuePair& queue_pair, KeptSlice from,
                                                       RemoteSlice to, Deadline deadline,
                                                       std::stop_token stop,
                                                       SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, from = std::move(from), to, flags] {
    return operations->write(queue_pair, from, to, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::write_with_immediate(
    const QueuePair& queue_pair, KeptSlice from, RemoteSlice to, std::uint32_t immediate,
    Deadline deadline, std::stop_token stop, SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, from = std::move(from), to, immediate,
               flags] {
    return operations->write_with_immediate(queue_pair, from, to, immediate, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::read(const QueuePair& queue_pair, KeptSlice into,
                                                      RemoteSlice from, Deadline deadline,
                                                      std::stop_token stop, SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, into = std::move(into), from, flags] {
    return operations->read(queue_pair, into, from, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::fetch_and_add(
    const QueuePair& queue_pair, KeptSlice before, RemoteSlice target, std::uint64_t addend,
    Deadline deadline, std::stop_token stop, SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, before = std::move(before), target, addend,
               flags] {
    return operations->fetch_and_add(queue_pair, before, target, addend, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::compare_and_swap(
    const QueuePair& queue_pair, KeptSlice before, RemoteSlice target, std::uint64_t expected,
    std::uint64_t desired, Deadline deadline, std::stop_token stop, SendFlags flags) const {
  auto post = [operations = operations_, &queue_pair, before = std::move(before), target, expected,
               desired, flags] {
    return operations->compare_and_swap(queue_pair, before, target, expected, desired, flags);
  };
  return Parts::request(*executor_, operations_->core_.get(), post, deadline, std::move(stop));
}

Task<std::optional<Completion>> AsyncOperations::wait(Operation operation, Deadline deadline,
                                                      std::stop_token stop) const {
  return Parts::wait(*executor_, operations_->core_.get(), std::move(operation), deadline,
                     std::move(stop));
}

}  // namespace weft::verbs
