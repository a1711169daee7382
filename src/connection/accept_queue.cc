#include "connection/accept_queue.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace weft::connection::detail {

AcceptQueue::AcceptQueue(int requests) : requests_(requests) {
  watched_.add(requests_);
}

std::unique_ptr<Core> AcceptQueue::remove(std::list<Entry>::iterator at) {
  watched_.remove(at->core->events().fd());
  auto core = std::move(at->core);
  connecting_.erase(at);
  return core;
}

// Nothing has been heard of it, neither that it is established nor that it has failed.
bool AcceptQueue::is_silent(const Entry& entry) {
  pollfd events{.fd = entry.core->events().fd(), .events = POLLIN, .revents = 0};
  return ::poll(&events, 1, 0) == 0;
}

std::unique_ptr<Core> AcceptQueue::take() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Core> found;
  for (auto at = connecting_.begin(); at != connecting_.end() && !found;) {
    const auto next = std::next(at);
    try {
      if (at->core->poll_connected()) found = remove(at);
    } catch (const Error&) {
      remove(at);  // the peer has disconnected again
    }
    at = next;
  }
  if (connecting_.size() < most) watch_requests(true);
  return found;
}

bool AcceptQueue::has_room() {
  const std::lock_guard lock(mutex_);
  if (connecting_.size() < most) return true;
  const auto oldest = std::ranges::find_if(connecting_, is_silent);
  // Without one, the next take() makes room.
  if (oldest == connecting_.end()) return false;
  const auto left = oldest->since + verbs::detail::longest_silence - steady_now();
  if (left > Clock::duration::zero()) {
    silent_.set(left);
    watch_requests(false);
    return false;
  }
  remove(oldest);
  watch_requests(true);
  return true;
}

void AcceptQueue::add(std::unique_ptr<Core> accepted) {
  const std::lock_guard lock(mutex_);
  watched_.add(accepted->events().fd());
  connecting_.push_back({.core = std::move(accepted)});
}

// Requests that wait for room make no thread look again and again.
void AcceptQueue::watch_requests(bool watch) {
  if (std::exchange(watches_requests_, watch) == watch) return;
  watched_.remove(watch ? silent_.fd() : requests_);
  watched_.add(watch ? requests_ : silent_.fd());
}

}  // namespace weft::connection::detail
