#include "weft/verbs/completion.hpp"

#include <fmt/format.h>

#include <thread>

#include "verbs/failure.h"
#include "verbs/state.h"
#include "verbs/waiting.h"

namespace weft::verbs {
namespace detail {

// Acknowledges the queue's events in one call, since each acknowledgement takes a lock in
// libibverbs, and before the queue is destroyed, since ibv_destroy_cq(3) waits for them.
CompletionQueueState::~CompletionQueueState() {
  if (!raw) return;
  if (!channel) {
    context->table.destroy_cq(raw);
    return;
  }
  const std::lock_guard lock(channel->fetching);
  if (unacknowledged > 0) context->table.ack_cq_events(raw, unacknowledged);
  context->table.destroy_cq(raw);
}

namespace {

// Takes the channel's next event and counts it as unacknowledged for its queue. Null if none is
// pending.
// The lock is held until the event is counted: a queue that is being destroyed must acknowledge
// every event that was taken for it, also by another thread.
CompletionQueueState* fetch(ChannelState& channel, void*& user_context) {
  const std::lock_guard lock(channel.fetching);
  ibv_cq* raw = nullptr;
  void* context = nullptr;
  if (channel.context->table.get_cq_event(channel.raw, &raw, &context) != 0) {
    if (errno != EAGAIN && errno != EINTR) fail(errno, "cannot take a completion event");
    return nullptr;
  }
  auto* queue = static_cast<CompletionQueueState*>(context);
  ++queue->unacknowledged;
  user_context = queue->user_context;
  return queue;
}

// A readable descriptor does not promise an event: another thread that waits on the channel may
// take it first.
bool next_event(ChannelState& channel, const Deadline& deadline, void*& user_context) {
  while (!fetch(channel, user_context)) {
    if (!await_readable(channel.raw->fd, deadline)) return false;
  }
  return true;
}

}  // namespace
}  // namespace detail

std::string_view status_name(ibv_wc_status status) {
  return detail::status_name(status);
}

CompletionChannel::CompletionChannel(std::shared_ptr<detail::ChannelState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

std::optional<void*> CompletionChannel::wait(Deadline deadline) const {
  void* user_context = nullptr;
  if (!detail::next_event(*state_, deadline, user_context)) return std::nullopt;
  return user_context;
}

CompletionQueue::CompletionQueue(std::shared_ptr<detail::CompletionQueueState> state)
    : state_(std::move(state)), raw_(state_->raw) {}

void CompletionQueue::arm(bool solicited_only) const {
  detail::check(ibv_req_notify_cq(raw(), solicited_only ? 1 : 0),
                "cannot arm the completion queue");
}

// The C call returns the error number; errno need not be set.
void CompletionQueue::resize(int entries) const {
  const int failed = state_->context->table.resize_cq(raw(), entries);
  if (failed) {
    detail::fail(failed, fmt::format("cannot resize a completion queue to {} entries", entries));
  }
}

// The order is poll, arm, poll, wait: a completion that arrives before the queue is armed raises no
// event, so only the second poll makes it safe to sleep.
std::span<Completion> CompletionQueue::wait(std::span<Completion> into, Deadline deadline) const {
  while (true) {
    auto got = poll(into);
    if (!got.empty() || into.empty()) return got;
    // Without a channel there is nothing to sleep on, so the thread polls, and yields in between.
    if (!state_->channel) {
      if (deadline.passed()) return got;
      std::this_thread::yield();
      continue;
    }
    arm();
    got = poll(into);  // completions from before arm() raise no event
    void* ignored = nullptr;
    if (!got.empty() || !detail::next_event(*state_->channel, deadline, ignored)) return got;
  }
}

}  // namespace weft::verbs
