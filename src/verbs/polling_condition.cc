#include "verbs/polling_condition.h"

namespace weft::verbs::detail {

// Called again after each wake-up. Draining the channel acknowledges the event that woke this
// waiter; arming before the second poll closes the race with a completion that arrives in
// between.
//
// A waiter that is not the first only looks at what others have polled. It rests its entry before
// that, so that a wake-up meanwhile is not lost.
bool PollingCondition::holds() {
  if (!was_first_) entry_.rest();
  if (!entry_.is_first()) return settled();
  if (was_first_) {
    while (channel_.wait(Deadline::now())) continue;
  }
  was_first_ = true;
  if (poll_and_test()) return true;
  queue_.arm();
  return poll_and_test();  // completions from before arm() raise no event
}

}  // namespace weft::verbs::detail
