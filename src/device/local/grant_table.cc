#include "device/local/grant_table.h"

#include <new>

namespace weft::device {
namespace {

// The upper 24 bits of an STag are random.
std::size_t start_of(std::uint32_t stag) {
  return (stag >> 8) & (grants::entries - 1);
}

std::size_t place(std::uint32_t stag, std::size_t step) {
  return (start_of(stag) + step) & (grants::entries - 1);
}

bool directly_accessible(const Region& region) {
  return !region.window && !region.null && !region.on_demand();
}

}  // namespace

bool GrantTable::open() {
  if (!memory_.valid()) memory_ = SharedMemory::create("weft-grants", grants::bytes);
  return memory_.valid();
}

Grant* GrantTable::at(std::size_t index) const {
  return std::launder(reinterpret_cast<Grant*>(memory_.data())) + index;
}

void GrantTable::publish(const Region& region) {
  if (!memory_.valid() || !directly_accessible(region)) return;
  const std::uint32_t stag = region.stag.load(std::memory_order_relaxed);
  for (std::size_t step = 0; step < grants::reach; ++step) {
    Grant& grant = *at(place(stag, step));
    if (grant.stag.load(std::memory_order_relaxed) != 0) continue;
    grant.domain = region.domain;
    grant.access = region.access;
    grant.iova = region.iova;
    grant.base = reinterpret_cast<std::uint64_t>(region.base);
    grant.length_bytes = region.length_bytes;
    grant.stag.store(stag, std::memory_order_release);
    return;
  }
}

void GrantTable::withdraw(const Region& region) {
  if (!memory_.valid()) return;
  const std::uint32_t stag = region.stag.load(std::memory_order_relaxed);
  for (std::size_t step = 0; step < grants::reach; ++step) {
    Grant& grant = *at(place(stag, step));
    if (grant.stag.load(std::memory_order_relaxed) != stag) continue;
    // Sequentially consistent, as the announcement is: either the peer does not find the region, or
    // the caller sees its announcement.
    grant.stag.store(0, std::memory_order_seq_cst);
    return;
  }
}

const Grant* GrantView::find(std::uint32_t stag) const {
  if (stag == 0) return nullptr;
  const auto* all = std::launder(reinterpret_cast<const Grant*>(memory_.data()));
  for (std::size_t step = 0; step < grants::reach; ++step) {
    const Grant& grant = all[place(stag, step)];
    if (grant.stag.load(std::memory_order_acquire) == stag) return &grant;
  }
  return nullptr;
}

}  // namespace weft::device
