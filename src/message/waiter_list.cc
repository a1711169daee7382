#include "message/waiter_list.h"

#include <cstddef>
#include <utility>

namespace weft::message::detail {

void WaiterList::add(std::shared_ptr<Suspension> suspension, std::function<bool()> ready) {
  waiters_.push_back({std::move(suspension), std::move(ready)});
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
