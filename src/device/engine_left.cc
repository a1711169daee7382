// What the progress thread leaves to application threads that poll: their descriptors are not in
// the epoll set meanwhile.
#include "device/engine.h"

namespace weft::device {

void Engine::leave(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(token);
  if (index >= slots_.size() || slots_[index].generation != generation_of(token)) return;
  Slot& slot = slots_[index];
  // Asked with the mutex held, as watch_again() comes behind the end of steady polling.
  if (slot.left || steady_polling() == 0 || abandoned_) return;
  slot.left = true;
  slot.target->polled_ = true;  // as of now
  left_.tokens.push_back(token);
  epoll_.remove(slot.fd);
}

void Engine::set_steady_polling(bool steady) {
  if (steady == (steady_polling() != 0)) return;
  const std::lock_guard lock(mutex_);
  left_.steady = steady ? 1 : 0;
  note_change();
}

// With mutex_ held.
void Engine::note_change() {
  if (steady_polling() == 0) return;
  if (++left_.changes == 0) ++left_.changes;
  left_.steady.store(left_.changes, std::memory_order_relaxed);
}

// Adds the descriptors that were left to the epoll set again: all of them, or those that no thread
// has polled since the last call. epoll then reports data that has come meanwhile.
void Engine::watch_again(bool all) {
  const std::lock_guard lock(mutex_);
  left_.refused = false;
  std::erase_if(left_.tokens, [&](std::uint64_t token) {
    Slot& slot = slots_[index_of(token)];
    if (slot.generation != generation_of(token) || !slot.left) return true;
    Pollable& target = *slot.target;
    const bool polled = target.polled_.exchange(false, std::memory_order_relaxed) ||
                        target.attending_.load(std::memory_order_relaxed);
    if (polled && !all) return false;
    note_change();
    return add_again(slot, token);
  });
}

// With mutex_ held. False: the kernel has no memory for it.
bool Engine::add_again(Slot& slot, std::uint64_t token) {
  slot.left = !abandoned_ && epoll_.add(slot.fd, slot.events, token) < 0;
  if (slot.left) left_.refused = true;
  return !slot.left;
}

}  // namespace weft::device
