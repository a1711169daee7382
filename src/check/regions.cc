#include "check/regions.h"

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

}  // namespace weft::check
