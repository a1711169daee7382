#include "check/regions.h"

#include <algorithm>

namespace weft::check {
namespace {

constexpr std::size_t max_gone = 65536;

}  // namespace

void Regions::add(const MemoryRegion& region) {
  const auto [entry, is_new] = by_key_.try_emplace(region.key);
  if (!is_new) unplace(entry->second);
  entry->second = region;
  place(region);
}

void Regions::remove(std::uint32_t key, StackId stack) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second.gone != 0) return;
  unplace(found->second);
  found->second.gone = stack;
  gone_.push_back(key);
  if (gone_.size() <= max_gone) return;
  // The key may have been given to a newer region.
  const auto oldest = by_key_.find(gone_.front());
  if (oldest != by_key_.end() && oldest->second.gone != 0) by_key_.erase(oldest);
  gone_.pop_front();
}

void Regions::note_freed(const MemoryRange& block) {
  placed_.find_overlapping(block, [&](std::uint64_t key, const MemoryRange& range) {
    if (block.contains(range)) by_key_.at(static_cast<std::uint32_t>(key)).freed = true;
    return false;
  });
}

void Regions::place(const MemoryRegion& region) {
  if (!region.is_placed()) return;
  placed_.add(region.range(), region.key);
  pages_.add(region.range());
}

void Regions::unplace(const MemoryRegion& region) {
  if (placed_.remove(region.range(), region.key)) pages_.remove(region.range());
}

void Regions::unplace_all() {
  placed_.clear();
  pages_.clear();
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
