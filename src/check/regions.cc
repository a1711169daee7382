#include "check/regions.h"

#include <algorithm>

namespace weft::check {
namespace {

constexpr std::size_t max_gone = 65536;

}  // namespace

void Regions::add(const MemoryRegion& region) {
  by_key_.insert_or_assign(region.key, region);
}

void Regions::remove(std::uint32_t key, StackId stack) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second.gone != 0) return;
  found->second.gone = stack;
  gone_.push_back(key);
  if (gone_.size() <= max_gone) return;
  // The key may have been given to a newer region.
  const auto oldest = by_key_.find(gone_.front());
  if (oldest != by_key_.end() && oldest->second.gone != 0) by_key_.erase(oldest);
  gone_.pop_front();
}

const MemoryRegion* Regions::find(std::uint32_t key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &found->second;
}

// A window grants more than its region does.
bool Regions::any_for_peers(std::uint64_t first, std::uint64_t bytes) const {
  constexpr auto rights = static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE) |
                          static_cast<unsigned>(IBV_ACCESS_REMOTE_ATOMIC) |
                          static_cast<unsigned>(IBV_ACCESS_MW_BIND);
  return std::any_of(by_key_.begin(), by_key_.end(), [&](const auto& entry) {
    const MemoryRegion& region = entry.second;
    if ((region.access & rights) == 0) return false;
    return region.any_address || region.memory == 0 ||
           (region.memory < first + bytes && first < region.memory + region.length);
  });
}

}  // namespace weft::check
