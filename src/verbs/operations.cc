#include "weft/verbs/operations.hpp"

#include <cerrno>

#include "verbs/failure.h"
#include "verbs/operations_core.h"

namespace weft::verbs {
namespace {

// A slice of no bytes is no piece: to some adapters the length 0 means 2 GiB.
std::span<const LocalSlice> pieces_of(const LocalSlice& slice) {
  return {&slice, slice.size_bytes() > 0 ? 1U : 0U};
}

}  // namespace

bool Operation::settled() const {
  return record_ && (record_->settled || record_->queue_pair.expired());
}

std::optional<Completion> Operation::completion() const {
  return record_ && record_->settled ? record_->completion : std::nullopt;
}

Operations::Operations(const Context& context, int entries)
    : core_(std::make_shared<detail::OperationsCore>(context, entries)) {}
Operations::Operations(Operations&&) noexcept = default;
Operations& Operations::operator=(Operations&&) noexcept = default;
Operations::~Operations() = default;

const CompletionQueue& Operations::queue() const {
  return core_->queue();
}

// The record is in the table before the request is posted: the device may complete it at once. It
// is posted without the lock, because a post may copy the whole message.
template <typename Post>
Operation Operations::post(const QueuePair& queue_pair, KeptSlice slice, const Post& post) {
  auto record = std::make_shared<detail::OperationRecord>();
  record->queue_pair = queue_pair.state_.get();
  const LocalSlice piece = slice.slice();
  record->slice = std::move(slice);
  auto id = core_->add(record);
  if (!id) {
    core_->poll();
    id = core_->add(record);
  }
  if (!id) return Operation(ENOMEM);
  const int failed = post(piece, *id);
  if (!failed) return Operation(std::move(record));
  core_->remove(*id);
  return Operation(failed);
}

Operation Operations::send(const QueuePair& queue_pair, KeptSlice from, SendFlags flags) {
  return post(queue_pair, std::move(from), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_send(pieces_of(piece), id, flags | SendFlags::signaled);
  });
}

Operation Operations::send_with_immediate(const QueuePair& queue_pair, KeptSlice from,
                                          std::uint32_t immediate, SendFlags flags) {
  return post(queue_pair, std::move(from), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_send_with_immediate(piece, immediate, id, flags | SendFlags::signaled);
  });
}

Operation Operations::receive(const QueuePair& queue_pair, KeptSlice into) {
  return post(queue_pair, std::move(into), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_receive(pieces_of(piece), id);
  });
}

Operation Operations::write(const QueuePair& queue_pair, KeptSlice from, const RemoteSlice& to,
                            SendFlags flags) {
  return post(queue_pair, std::move(from), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_write(pieces_of(piece), to, id, flags | SendFlags::signaled);
  });
}

Operation Operations::write_with_immediate(const QueuePair& queue_pair, KeptSlice from,
                                           const RemoteSlice& to, std::uint32_t immediate,
                                           SendFlags flags) {
  return post(queue_pair, std::move(from), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_write_with_immediate(piece, to, immediate, id,
                                                flags | SendFlags::signaled);
  });
}

Operation Operations::read(const QueuePair& queue_pair, KeptSlice into, const RemoteSlice& from,
                           SendFlags flags) {
  return post(queue_pair, std::move(into), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_read(pieces_of(piece), from, id, flags | SendFlags::signaled);
  });
}

Operation Operations::fetch_and_add(const QueuePair& queue_pair, KeptSlice before,
                                    const RemoteSlice& target, std::uint64_t addend,
                                    SendFlags flags) {
  return post(queue_pair, std::move(before), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_fetch_and_add(piece, target, addend, id, flags | SendFlags::signaled);
  });
}

Operation Operations::compare_and_swap(const QueuePair& queue_pair, KeptSlice before,
                                       const RemoteSlice& target, std::uint64_t expected,
                                       std::uint64_t desired, SendFlags flags) {
  return post(queue_pair, std::move(before), [&](const LocalSlice& piece, std::uint64_t id) {
    return queue_pair.post_compare_and_swap(piece, target, expected, desired, id,
                                            flags | SendFlags::signaled);
  });
}

std::size_t Operations::poll() {
  return core_->poll();
}

std::optional<Completion> Operations::wait(const Operation& operation, Deadline deadline,
                                           std::stop_token stop) {
  detail::OperationsCore& core = *core_;  // throws if this is empty, whatever the operation is
  if (!operation) detail::fail(EINVAL, "cannot wait for an operation that was not posted");
  detail::OperationCondition condition(core, operation);
  detail::Waiter waiter(deadline, std::move(stop));
  static_cast<void>(waiter.until(condition));
  return operation.completion();
}

std::size_t Operations::under_way() const {
  return core_->under_way();
}

std::optional<Completion> Operations::take_other() {
  return core_->take_other();
}

}  // namespace weft::verbs
