#include "message/waiter_list.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace weft::message::detail {

void WaiterList::add(std::shared_ptr<Suspension> suspension, std::function<bool()> ready) {
  if (waiters_.size() >= drop_at_) drop_ended();
  waiters_.push_back({std::move(suspension), std::move(ready)});
}

// The list is in order again before the first of them is destroyed: a destructor may come back
// here.
void WaiterList::drop_ended() {
  constexpr std::size_t few = 8;
  const auto ended =
      std::stable_partition(waiters_.begin(), waiters_.end(),
                            [](const Waiter& waiter) { return waiter.suspension->waits(); });
  const std::vector<Waiter> dropped{std::make_move_iterator(ended),
                                    std::make_move_iterator(waiters_.end())};
  waiters_.erase(ended, waiters_.end());
  drop_at_ = std::max(few, 2 * waiters_.size());
}

void WaiterList::resume_ready() {
  for (std::size_t i = 0; i < waiters_.size();) {
    if (waiters_[i].suspension->waits() && !waiters_[i].ready()) {
      ++i;
      continue;
    }
    const auto suspension = std::move(waiters_[i].suspension);
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    suspension->resume(Woken::ready);
    i = 0;  // the coroutine may have changed the list and any condition
  }
}

// The list is empty before the first waiter is destroyed: a destructor may come back here.
void WaiterList::clear() {
  const auto waiters = std::move(waiters_);
  waiters_.clear();
}

}  // namespace weft::message::detail
