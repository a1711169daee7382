#include "connection/turns.h"

#include <algorithm>

namespace weft::connection::detail {

Turn::Turn(Turns& turns) : turns_(turns) {
  const std::lock_guard lock(turns_.lock_);
  if (!turns_.waiting_.empty()) flag_.emplace();
  turns_.waiting_.push_back(this);
}

Turn::~Turn() {
  const std::lock_guard lock(turns_.lock_);
  auto& waiting = turns_.waiting_;
  const bool passes_on = waiting.front() == this;
  waiting.erase(std::ranges::find(waiting, this));
  if (passes_on && !waiting.empty()) waiting.front()->wake();
}

bool Turn::is_mine() const {
  const std::lock_guard lock(turns_.lock_);
  return turns_.waiting_.front() == this;
}

void Turn::wake() noexcept {
  if (flag_) flag_->raise();
}

}  // namespace weft::connection::detail
