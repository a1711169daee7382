#include "connection/requests.h"

#include <algorithm>

namespace weft::connection::detail {

Requests::Posting Requests::add(std::uint64_t user_id, bool wants_outcome, bool internal,
                                AwaitedRequest* awaited) {
  // Signal at least one request per half queue. A completion can then always free entries before
  // the queue is full.
  const std::uint32_t most = std::max(depth_ / 2, 1U);
  const bool signaled = wants_outcome || unsignaled_ + 1 >= most;
  unsignaled_before_ = unsignaled_;
  unsignaled_ = signaled ? 0 : unsignaled_ + 1;
  // The number is the position in the queue since the beginning, so a completion finds its entry
  // without a search.
  const std::uint64_t number = first_ + entries_.size();
  entries_.push_back({user_id, wants_outcome, internal, signaled, awaited});
  // The upper 16 bits mark requests of this library among those that the user posts with ids of his
  // own.
  return {mark | (number & ~(std::uint64_t{0xFFFF} << 48)), signaled};
}

void Requests::drop_last() {
  entries_.pop_back();
  unsignaled_ = unsignaled_before_;
}

void Requests::fail_last(std::uint64_t user_id, AwaitedRequest* awaited) {
  Entry& last = entries_.back();
  last.user_id = user_id;
  last.wants_outcome = true;
  last.internal = false;
  last.awaited = awaited;
  last.incomplete = true;
}

bool Requests::awaits_completion() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.signaled; });
}

// Send queue requests complete in order, so one completion also covers the unsignaled requests
// before it.
std::optional<Requests::Finished> Requests::finish(std::uint64_t id, bool ok) {
  const std::uint64_t number = id & ~(std::uint64_t{0xFFFF} << 48);
  if (number < first_ || number - first_ >= entries_.size()) return std::nullopt;
  const Entry entry = entries_[static_cast<std::size_t>(number - first_)];
  const auto done = static_cast<std::ptrdiff_t>(number - first_ + 1);
  entries_.erase(entries_.begin(), entries_.begin() + done);
  first_ = number + 1;
  // A failure is reported even for a request without SendFlags::signaled, unless it is internal.
  return Finished{entry.user_id, !entry.internal && (entry.wants_outcome || !ok), entry.incomplete,
                  entry.awaited};
}

void Requests::detach(const AwaitedRequest& awaited) {
  for (Entry& entry : entries_) {
    if (entry.awaited == &awaited) entry.awaited = nullptr;
  }
}

}  // namespace weft::connection::detail
