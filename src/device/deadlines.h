// What an engine calls at a given time. Most deadlines are limits for something that ends long
// before, such as a handshake; the entry of what has ended is forgotten before its time has come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

namespace weft::device {

// Not thread-safe. `Target` is kept alive by its owner alone.
template <typename Target>
class Deadlines {
 public:
  // Returns whether this is the first deadline now.
  bool add(std::uint64_t deadline_ns, const std::shared_ptr<Target>& target) {
    if (entries_.size() >= sweep_at_) sweep();
    const auto added = entries_.emplace(deadline_ns, target);
    return added == entries_.begin();
  }

  // Of those that are known, which may be gone.
  [[nodiscard]] std::optional<std::uint64_t> first() const {
    if (entries_.empty()) return std::nullopt;
    return entries_.begin()->first;
  }

  // Removes the first entry. Null if there is none, or its target is gone.
  std::shared_ptr<Target> take_first() {
    if (entries_.empty()) return nullptr;
    auto target = entries_.begin()->second.lock();
    entries_.erase(entries_.begin());
    return target;
  }

  // The first deadline of something that is there.
  [[nodiscard]] std::optional<std::uint64_t> first_alive() {
    while (!entries_.empty() && entries_.begin()->second.expired()) {
      entries_.erase(entries_.begin());
    }
    return first();
  }

  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  // At most half of the entries are of what is gone, and each entry is looked at a bounded number
  // of times on average.
  void sweep() {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(least_entries, 2 * entries_.size());
  }

  static constexpr std::size_t least_entries = 256;

  std::multimap<std::uint64_t, std::weak_ptr<Target>> entries_;
  std::size_t sweep_at_ = least_entries;
};

}  // namespace weft::device
