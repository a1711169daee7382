#include "device/connect/dial_turns.h"

#include <algorithm>
#include <vector>

#include "device/limits.h"
#include "device/system.h"

namespace weft::device {

std::optional<DialTurns::Turn> DialTurns::take(const sockaddr_storage& destination,
                                               bool within_host,
                                               const std::weak_ptr<Pollable>& waiter) {
  const AddressKey key = key_of(destination);
  const std::lock_guard lock(mutex_);
  Destination& there = destinations_[key];
  there.most = within_host ? limits::dials_within_host : limits::dials_to_a_host;
  if (there.active >= there.most) {
    there.waiting.push_back(waiter);
    return std::nullopt;
  }
  ++there.active;
  return std::optional<Turn>(std::in_place, *this, key);
}

void DialTurns::pass_on(const sockaddr_storage& destination) {
  call_waiters(key_of(destination), false);
}

void DialTurns::give_back(const AddressKey& key) {
  call_waiters(key, true);
}

// As many as there are free turns. Where a waiter passes its call on, two: each of them passes it
// on as well, so that all of many are called soon. The engine calls them without the locks that the
// caller holds.
void DialTurns::call_waiters(const AddressKey& key, bool ended) {
  std::vector<std::shared_ptr<Pollable>> called;
  {
    const std::lock_guard lock(mutex_);
    const auto found = destinations_.find(key);
    if (found == destinations_.end()) return;
    Destination& there = found->second;
    if (ended) --there.active;
    const std::size_t count = ended ? there.most - there.active : 2;
    while (called.size() < count && !there.waiting.empty()) {
      if (auto waiter = there.waiting.front().lock()) called.push_back(std::move(waiter));
      there.waiting.pop_front();
    }
    if (there.active == 0 && there.waiting.empty()) destinations_.erase(found);
  }
  for (const auto& waiter : called) engine_.call_at(sys::now_ns(), waiter);
}

}  // namespace weft::device
