// What an engine calls at a given time. Most deadlines are limits for something that ends long
// before, such as a handshake; the entry of what has ended is forgotten before its time has come.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>

namespace weft::device {

// Not thread-safe, unless stated otherwise. `Target` is kept alive by its owner alone.
template <typename Target>
class Deadlines {
 public:
  // Returns whether this is the first deadline now.
  bool add(std::uint64_t deadline_ns, const std::shared_ptr<Target>& target) {
    if (entries_.size() >= sweep_at_) sweep();
    const auto added = entries_.emplace(deadline_ns, target);
    note_first();
    return added == entries_.begin();
  }

  // Whether there was one at `now_ns` or before when another thread changed this the last time.
  // Thread-safe.
  [[nodiscard]] bool may_be_due(std::uint64_t now_ns) const {
    return first_ns_.load(std::memory_order_relaxed) <= now_ns;
  }

  // Of those that are known, which may be gone.
  [[nodiscard]] std::optional<std::uint64_t> first() const {
    if (entries_.empty()) return std::nullopt;
    return entries_.begin()->first;
  }

  // Removes the first entry. Null if there is none, or its target was destroyed.
  std::shared_ptr<Target> take_first() {
    if (entries_.empty()) return nullptr;
    auto target = entries_.begin()->second.lock();
    entries_.erase(entries_.begin());
    note_first();
    return target;
  }

  // The first deadline of something that is there.
  [[nodiscard]] std::optional<std::uint64_t> first_alive() {
    while (!entries_.empty() && entries_.begin()->second.expired()) {
      entries_.erase(entries_.begin());
    }
    note_first();
    return first();
  }

  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  // At most half of the entries have a target that was destroyed, and each entry is looked at a
  // bounded number of times on average.
  void sweep() {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(least_entries, 2 * entries_.size());
  }

  void note_first() { first_ns_.store(first().value_or(never), std::memory_order_relaxed); }

  static constexpr std::size_t least_entries = 256;
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::multimap<std::uint64_t, std::weak_ptr<Target>> entries_;
  std::size_t sweep_at_ = least_entries;
  std::atomic<std::uint64_t> first_ns_{never};
};

}  // namespace weft::device
