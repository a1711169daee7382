#include "cm/failing_requests.h"

#include <utility>

namespace weft::cm {

bool FailingRequests::take(device::Engine& engine, const faults::Action& fault,
                           const Inbound& inbound, std::function<void()> report) {
  if (fault.failure() == faults::Failure::reject) {
    inbound->reject({});
    return false;
  }
  const std::lock_guard lock(mutex_);
  // The connection stays open without an answer. If it were closed, the peer would get a refusal at
  // once instead of a timeout.
  if (fault.failure() == faults::Failure::silence) {
    unanswered_.push_back(inbound);
    return false;
  }
  // Calls that are over are removed here, so that the list does not grow with every request.
  std::erase_if(delayed_, [](const auto& call) { return call->done(); });
  const auto delay_ns = static_cast<std::uint64_t>(fault.argument);
  delayed_.push_back(device::DelayedCall::start(engine, delay_ns, std::move(report)));
  return true;
}

// The calls are destroyed without the lock, because they own connections.
void FailingRequests::close() {
  std::vector<Inbound> unanswered;
  std::vector<std::shared_ptr<device::DelayedCall>> delayed;
  {
    const std::lock_guard lock(mutex_);
    unanswered.swap(unanswered_);
    delayed.swap(delayed_);
  }
  for (const auto& inbound : unanswered) inbound->cancel();
}

// Without the lock, which a thread of the parent may have held at the fork.
void FailingRequests::abandon_after_fork() {
  for (const auto& inbound : unanswered_) inbound->abandon_after_fork();
}

}  // namespace weft::cm
