#include "stream/accept_queue.h"

#include <algorithm>

namespace weft::stream::detail {

// As close(2) does with connections that were not accepted, these are reset.
AcceptQueue::~AcceptQueue() {
  while (!connecting_.empty()) remove(connecting_.begin()).abort();
}

Stream AcceptQueue::remove(std::list<Entry>::iterator at) {
  at->stream.unwatch(&at->watch);
  Stream stream = std::move(at->stream);
  connecting_.erase(at);
  return stream;
}

std::optional<Stream> AcceptQueue::take() {
  const std::lock_guard lock(mutex_);
  settled_.lower();
  const bool was_full = connecting_.size() >= most;
  std::optional<Stream> found;
  for (auto at = connecting_.begin(); at != connecting_.end();) {
    const auto next = std::next(at);
    if (at->stream.state() != State::connecting) {
      if (found) {
        settled_.raise();  // for another thread, or the next call
        break;
      }
      Stream stream = remove(at);
      try {
        if (stream.await_connected(Deadline::now())) found.emplace(std::move(stream));
      } catch (const Error&) {
        // This peer has disconnected again.
      }
    }
    at = next;
  }
  // Another thread that waits for room only may take requests again.
  if (was_full && connecting_.size() < most) settled_.raise();
  return found;
}

bool AcceptQueue::has_room() {
  const std::lock_guard lock(mutex_);
  if (connecting_.size() < most) return true;
  const auto oldest = std::ranges::find_if(
      connecting_, [](const Entry& entry) { return entry.stream.state() == State::connecting; });
  // Without one, a stream is connected, and the next take() makes room.
  if (oldest == connecting_.end()) return false;
  const auto left = oldest->since + verbs::detail::longest_silence - steady_now();
  if (left > Clock::duration::zero()) {
    silent_.set(left);
    return false;
  }
  remove(oldest).abort();
  return true;
}

void AcceptQueue::add(Stream stream) {
  const std::lock_guard lock(mutex_);
  Entry& entry = connecting_.emplace_back(std::move(stream), settled_);
  // Reports the present state, too: the stream may be connected by now.
  (void)entry.stream.watch(&entry.watch);
}

// Requests that wait for room make no thread look again and again.
verbs::detail::Descriptors AcceptQueue::descriptors(int requests) {
  const std::lock_guard lock(mutex_);
  if (connecting_.size() < most) return {settled_.fd(), requests};
  // Without a timer a stream is connected, which the flag reports.
  return silent_.fd() < 0 ? verbs::detail::Descriptors{settled_.fd()}
                          : verbs::detail::Descriptors{settled_.fd(), silent_.fd()};
}

}  // namespace weft::stream::detail
