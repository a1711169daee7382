#include "device/local/sole_reader.h"

#include <utility>

namespace weft::device {

bool SoleReader::watch(int fd, std::shared_ptr<Pollable> target) {
  const std::lock_guard lock(mutex_);
  token_ = engine_.watch(fd, events_, std::move(target));
  return token_ != 0;
}

void SoleReader::unwatch() {
  std::uint64_t token = 0;
  {
    const std::lock_guard lock(mutex_);
    token = std::exchange(token_, 0);
  }
  engine_.unwatch(token);
}

void SoleReader::watch_for(std::uint32_t events) {
  const std::lock_guard lock(mutex_);
  events_ = events;
  paused_ = false;
  engine_.change(token_, events_);
}

bool SoleReader::begin(std::uint32_t events) {
  if (!reading_.test_and_set()) return true;
  if (events == 0) return false;
  left_.fetch_or(events);
  return !reading_.test_and_set();  // the other thread may have ended before it could find them
}

// In this order: what is left is found by a thread that ends the pause.
bool SoleReader::begin_reported(std::uint32_t events) {
  if (begin()) return true;
  {
    const std::lock_guard lock(mutex_);
    paused_ = true;
    engine_.change(token_, 0);
  }
  return begin(events);
}

void SoleReader::watch_again() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(paused_, false)) engine_.change(token_, events_);
}

bool SoleReader::end() {
  reading_.clear();
  return left_.load() != 0;
}

}  // namespace weft::device
