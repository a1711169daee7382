// Events that the program has fetched and not acknowledged, of ids of rdma_cm and of queue pairs,
// completion queues and shared receive queues (asynchronous ones).
#pragma once

#include <cstdint>
#include <unordered_map>

namespace weft::check {

// Not thread-safe. An object is known from its first event to its end.
class EventAccounts {
 public:
  void fetched(const void* object) { ++open_[object]; }
  void acknowledged(const void* object) {
    const auto found = open_.find(object);
    if (found != open_.end() && found->second > 0) --found->second;
  }
  [[nodiscard]] std::uint64_t open(const void* object) const {
    const auto found = open_.find(object);
    return found == open_.end() ? 0 : found->second;
  }
  void forget(const void* object) { open_.erase(object); }

 private:
  std::unordered_map<const void*, std::uint64_t> open_;
};

}  // namespace weft::check
