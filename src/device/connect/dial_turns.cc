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

// Two, because those that are called pass it on as well: so all of many are called soon.
void DialTurns::pass_on(const sockaddr_storage& destination) {
  call(key_of(destination), 2);
}

void DialTurns::give_back(const AddressKey& key) {
  std::size_t free = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = destinations_.find(key);
    if (found == destinations_.end()) return;
    Destination& there = found->second;
    --there.active;
    free = there.most - there.active;
    if (there.active == 0 && there.waiting.empty()) destinations_.erase(found);
  }
  call(key, free);
}

// Each is called by the engine, without the locks that the caller holds.
void DialTurns::call(const AddressKey& key, std::size_t count) {
  std::vector<std::shared_ptr<Pollable>> called;
  {
    const std::lock_guard lock(mutex_);
    const auto found = destinations_.find(key);
    if (found == destinations_.end()) return;
    auto& waiting = found->second.waiting;
    while (called.size() < count && !waiting.empty()) {
      if (auto waiter = waiting.front().lock()) called.push_back(std::move(waiter));
      waiting.pop_front();
    }
    if (found->second.active == 0 && waiting.empty()) destinations_.erase(found);
  }
  for (const auto& waiter : called) engine_.call_at(sys::now_ns(), waiter);
}

}  // namespace weft::device
