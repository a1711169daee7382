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
  return !region.window && !region.null && !region.on_demand() && region.remote_valid;
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
    // A peer that still reads the previous region of this place must not take these values for it.
    std::atomic_thread_fence(std::memory_order_release);
    grant.domain = region.domain;
    grant.access = region.access;
    grant.iova = region.iova;
    grant.base = reinterpret_cast<std::uint64_t>(region.base);
    grant.length_bytes = region.length_bytes;
    grant.stag.store(stag, std::memory_order_release);
    return;
  }
}

void GrantTable::withdraw(const Region& region) const {
  if (!memory_.valid()) return;
  const std::uint32_t stag = region.stag.load(std::memory_order_relaxed);
  for (std::size_t step = 0; step < grants::reach; ++step) {
    Grant& grant = *at(place(stag, step));
    // Sequentially consistent, as the announcement is: either the peer does not find the region, or
    // the caller sees its announcement.
    std::uint32_t found = stag;
    if (grant.stag.compare_exchange_strong(found, 0, std::memory_order_seq_cst)) return;
  }
}

// The place may get another region while its values are read; the STag is then not the same any
// more.
std::optional<GrantView::Values> GrantView::find(std::uint32_t stag) const {
  if (stag == 0) return std::nullopt;
  const auto* all = std::launder(reinterpret_cast<const Grant*>(memory_.data()));
  for (std::size_t step = 0; step < grants::reach; ++step) {
    const Grant& grant = all[place(stag, step)];
    if (grant.stag.load(std::memory_order_seq_cst) != stag) continue;
    const Values values{.domain = grant.domain,
                        .access = grant.access,
                        .iova = grant.iova,
                        .base = grant.base,
                        .length_bytes = grant.length_bytes};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (grant.stag.load(std::memory_order_relaxed) != stag) return std::nullopt;
    return values;
  }
  return std::nullopt;
}

GrantView::Found GrantView::look_up(const Access& access) const {
  using iwarp::Fault;
  const auto grant = find(access.stag);
  if (!grant) return {};
  if (grant->domain != access.domain) return {true, Fault::foreign_domain};
  if ((grant->access & access.needed) != access.needed) return {true, Fault::access};
  if (access.offset + access.length_bytes < access.offset) return {true, Fault::wrap};
  const std::uint64_t into = access.offset - grant->iova;
  if (access.offset < grant->iova || into > grant->length_bytes ||
      access.length_bytes > grant->length_bytes - into) {
    return {true, Fault::bounds};
  }
  return {true, Fault::none, grant->base + into};
}

}  // namespace weft::device
