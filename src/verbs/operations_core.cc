#include "verbs/operations_core.h"

#include <poll.h>

#include <chrono>

#include "base/log.h"
#include "provider/shared.h"

namespace weft::verbs::detail {
namespace {

// The ids of this class among those of requests that the program posts directly.
constexpr std::uint64_t mark = std::uint64_t{0x574F} << 48;
constexpr std::uint64_t mark_bits = std::uint64_t{0xFFFF} << 48;

ibv_qp_state state_of(const QueuePairState& state) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const int failed = table_of(state).query_qp(state.raw, &attributes, IBV_QP_STATE, &initial);
  return failed ? IBV_QPS_ERR : attributes.qp_state;
}

}  // namespace

OperationsCore::OperationsCore(const Context& context, int entries)
    : channel_(context.create_channel()),
      queue_(context.create_completion_queue(entries, {.channel = &channel_})) {}

// A request whose device does not flush it would write to freed memory, so its record is left to
// live as long as the process.
OperationsCore::~OperationsCore() {
  try {
    drain();
  } catch (const std::exception& error) {
    log(LogLevel::warning, "operations", error.what());
  }
  if (posted_.empty()) return;
  log_format(LogLevel::warning, "operations",
             "the device has not flushed %zu requests: their memory is not freed", posted_.size());
  static_cast<void>(new auto(std::move(posted_)));
}

// Each request under way has a place in the completion queue, so that it cannot overflow.
std::optional<std::uint64_t> OperationsCore::add(const std::shared_ptr<OperationRecord>& record) {
  const std::lock_guard lock(mutex_);
  if (posted_.size() >= static_cast<std::size_t>(queue_.capacity())) drop_what_cannot_complete();
  if (posted_.size() >= static_cast<std::size_t>(queue_.capacity())) return std::nullopt;
  const std::uint64_t id = mark | (++last_id_ & ~mark_bits);
  posted_.emplace(id, record);
  return id;
}

void OperationsCore::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  posted_.erase(id);
}

// The device has forgotten the requests of a queue pair that was destroyed or reset.
void OperationsCore::drop_what_cannot_complete() {
  std::erase_if(posted_, [](const auto& entry) { return entry.second->queue_pair.expired(); });
}

void OperationsCore::settle(const Completion& completion, Kept& freed) {
  const auto found = posted_.find(completion.id());
  if (found == posted_.end()) {
    // That of a request whose queue pair was destroyed meanwhile is for no waiter.
    if ((completion.id() & mark_bits) != mark) others_.push_back(completion);
    return;
  }
  OperationRecord& record = *found->second;
  record.completion = completion;
  freed.push_back(std::exchange(record.slice, KeptSlice()));
  record.settled = true;
  posted_.erase(found);
  ++settled_count_;
}

std::size_t OperationsCore::poll() {
  Kept freed;
  std::size_t polled = 0;
  {
    const std::lock_guard lock(mutex_);
    polled = queue_.for_each([&](const Completion& completion) { settle(completion, freed); });
  }
  if (polled > 0) waiters_.wake_others();
  return polled;
}

std::size_t OperationsCore::under_way() {
  const std::lock_guard lock(mutex_);
  drop_what_cannot_complete();
  return posted_.size();
}

std::optional<Completion> OperationsCore::take_other() {
  const std::lock_guard lock(mutex_);
  if (others_.empty()) return std::nullopt;
  const Completion first = others_.front();
  others_.pop_front();
  return first;
}

// No coroutine and no thread waits any more, so nothing else polls. The device flushes a queue pair
// in the error state by itself.
void OperationsCore::drain() {
  constexpr std::chrono::seconds longest{5};
  const Deadline deadline(longest);
  poll();
  for (const auto& [id, record] : posted_) {
    const auto queue_pair = record->queue_pair.lock();
    if (!queue_pair || state_of(*queue_pair) == IBV_QPS_ERR) continue;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    // Refused from RESET, where no request is left.
    if (table_of(*queue_pair).modify_qp(queue_pair->raw, &attributes, IBV_QP_STATE) != 0) {
      record->queue_pair.reset();
    }
  }
  while (true) {
    drop_what_cannot_complete();
    if (posted_.empty() || deadline.passed()) return;
    queue_.arm();
    if (poll() > 0) continue;
    // A queue pair that another thread destroys now raises no event, so the wait is short.
    constexpr std::chrono::milliseconds pause{10};
    static_cast<void>(channel_.wait(pause));
  }
}

}  // namespace weft::verbs::detail
