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
  if (fault.failure() == faults::Failure::silence) {
    unanswered_.push_back(inbound);
    return false;
  }
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

void FailingRequests::abandon_after_fork() {
  for (const auto& inbound : unanswered_) inbound->abandon_after_fork();
}

}  // namespace weft::cm
