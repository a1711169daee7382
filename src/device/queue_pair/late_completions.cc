#include "device/queue_pair/late_completions.h"

#include <algorithm>
#include <utility>

namespace weft::device {

// A completion queue shows the completions of one queue pair in the order in which they were added
// (ibv_poll_cq(3)), so a late one holds back those behind it.
void LateCompletions::add(const ibv_qp& qp, const Completed& completed, std::uint64_t now_ns) {
  Due due{.completed = completed, .due_ns = late_.empty() ? now_ns : late_.back().due_ns};
  const auto action = faults_.request(faults::Point::completion, qp, end_, 0);
  if (action && action->failure() == faults::Failure::overrun) due.overruns = true;
  if (action && action->failure() == faults::Failure::delay) {
    due.due_ns = std::max(due.due_ns, now_ns + static_cast<std::uint64_t>(action->argument));
  }
  late_.push_back(due);
}

std::optional<LateCompletions::Due> LateCompletions::take(std::uint64_t now_ns) {
  if (late_.empty() || late_.front().due_ns > now_ns) return std::nullopt;
  const Due due = late_.front();
  late_.pop_front();
  return due;
}

std::optional<std::uint64_t> LateCompletions::new_alarm_ns() {
  const std::uint64_t next_ns = late_.empty() ? 0 : late_.front().due_ns;
  if (next_ns == std::exchange(alarm_ns_, next_ns) || next_ns == 0) return std::nullopt;
  return next_ns;
}

void LateCompletions::drop() {
  for (const Due& due : late_) due.completed.delivery.drop();
  late_.clear();
}

void LateCompletions::forget(const QueueSlots& slots) {
  std::erase_if(late_, [&](const Due& due) {
    const bool named = due.completed.delivery.slots == &slots;
    if (named) due.completed.delivery.drop();
    return named;
  });
}

}  // namespace weft::device
