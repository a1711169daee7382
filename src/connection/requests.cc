#include "connection/requests.h"

#include <algorithm>

namespace weft::connection::detail {

Requests::Ticket Requests::add(std::uint64_t user_id, bool wanted, bool ours, Claim* claim) {
  // The last one before the queue is full must be signaled, and one halfway.
  const std::uint32_t most = std::max(depth_ / 2, 1U);
  const bool signaled = wanted || unsignaled_ + 1 >= most;
  unsignaled_before_ = unsignaled_;
  unsignaled_ = signaled ? 0 : unsignaled_ + 1;
  const std::uint64_t number = first_ + entries_.size();
  entries_.push_back({user_id, wanted, ours, signaled, claim});
  return {mark | (number & ~(std::uint64_t{0xFFFF} << 48)), signaled};
}

void Requests::drop_last() {
  entries_.pop_back();
  unsignaled_ = unsignaled_before_;
}

std::optional<Requests::Finished> Requests::finish(std::uint64_t id, bool ok) {
  const std::uint64_t number = id & ~(std::uint64_t{0xFFFF} << 48);
  if (number < first_ || number - first_ >= entries_.size()) return std::nullopt;
  const Entry entry = entries_[static_cast<std::size_t>(number - first_)];
  const auto done = static_cast<std::ptrdiff_t>(number - first_ + 1);
  entries_.erase(entries_.begin(), entries_.begin() + done);
  first_ = number + 1;
  // A failure is told even of what nobody wanted to hear of.
  return Finished{entry.user_id, !entry.ours && (entry.wanted || !ok), entry.claim};
}

void Requests::disown(const Claim& claim) {
  for (Entry& entry : entries_) {
    if (entry.claim == &claim) entry.claim = nullptr;
  }
}

}  // namespace weft::connection::detail
