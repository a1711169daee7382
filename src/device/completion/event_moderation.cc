#include "device/completion/event_moderation.h"

namespace weft::device {

// ibv_modify_cq(3): the period is in microseconds, and 0 switches a limit off.
void EventModeration::set(std::uint16_t count, std::uint16_t period_us) {
  count_ = count;
  period_ns_ = std::uint64_t{period_us} * 1000;
}

// Either limit is enough; without any, each completion raises its event.
bool EventModeration::add(std::uint64_t now_ns) {
  if (!active()) return true;
  if (held_++ == 0) held_since_ns_ = now_ns;
  const bool many = count_ > 0 && held_ >= count_;
  const bool long_enough = period_ns_ > 0 && now_ns >= held_since_ns_ + period_ns_;
  return many || long_enough;
}

// Taking the lock waits for a callback in progress, so the queue may be destroyed afterwards.
void ModerationClock::stop() {
  const std::lock_guard lock(mutex_);
  tick_ = nullptr;
}

// With the lock, so that stop() can wait for the end of this call.
void ModerationClock::on_deadline() {
  const std::lock_guard lock(mutex_);
  if (tick_) tick_();
}

}  // namespace weft::device
