#include "device/memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/fault_handler.h"
#include "base/guarded_memory.h"
#include "device/limits.h"
#include "device/local/grant_table.h"
#include "device/memory/memory_window.h"
#include "device/memory/on_demand.h"
#include "device/memory/special_memory.h"

namespace weft::device {

namespace {

constexpr std::size_t first_table_entries = 256;
// STags from here on are reserved for control words: 1/256 of all.
constexpr std::uint32_t control_stags = 0xFF000000;

}  // namespace

// Readers take no lock, so what they may see is only replaced: a new table beside the old one, a
// tombstone in place of a region.
MemoryTable::MemoryTable() : grants_(std::make_unique<GrantTable>()) {
  tables_.push_back(std::make_unique<Table>(first_table_entries));
  table_ = tables_.back().get();
}

MemoryTable::~MemoryTable() = default;

// At least half of the entries stay free, so that probe sequences are short and always end.
bool MemoryTable::add(Region& region) {
  const std::lock_guard lock(mutex_);
  if (size_ >= limits::max_memory_regions) return false;
  std::uint32_t stag = 0;
  // The lowest eight bits are the consumer's key (ibv_inc_rkey(3)), so the other 24 bits must be
  // unique. Both come from the kernel's generator: a peer that was granted some regions must not be
  // able to compute the STags of others (RFC 5042 §6.3.1).
  do {
    stag = random_.next() & 0xFFFFFF00;
  } while (stag == 0 || stag >= control_stags || find(stag) != nullptr);
  stag |= random_.next() & 0xFF;
  region.mr.lkey = stag;
  region.mr.rkey = stag;
  region.stag = stag;
  insert_new(region);
  return true;
}

bool MemoryTable::add_foreign(Region& region, std::uint32_t stag) {
  const std::lock_guard lock(mutex_);
  if (size_ >= limits::max_memory_regions || find(stag) != nullptr) return false;
  region.mr.lkey = stag;
  region.mr.rkey = stag;
  region.stag = stag;
  insert_new(region);
  return true;
}

// As add(), with the STag that the region has already: ibv_rereg_mr(3) keeps the keys.
void MemoryTable::restore(Region& region) {
  const std::lock_guard lock(mutex_);
  insert_new(region);
}

// With the lock held. The region is complete by now: from here on readers find it.
void MemoryTable::insert_new(Region& region) {
  // `used_` counts tombstones as well, because they lengthen the search like regions.
  if ((used_ + 1) * 2 > table_.load()->slots.size()) grow();
  insert(*table_, &region);
  grants_->publish(region);
  ++size_;
  ++used_;
}

// The lock keeps the table from being replaced meanwhile.
Region* MemoryTable::find_local(std::uint32_t lkey) {
  const std::lock_guard lock(mutex_);
  Region* const found = find(lkey);
  return found && !found->window && found->mr.lkey == lkey ? found : nullptr;
}

bool MemoryTable::open_grants() {
  const std::lock_guard lock(mutex_);
  // Opened with the first connection within the host: most contexts have none.
  if (grants_->is_open()) return true;
  if (!grants_->open()) return false;
  for (const auto& slot : table_.load()->slots) {
    const Region* region = slot.load(std::memory_order_relaxed);
    if (is_region(region)) grants_->publish(*region);
  }
  return true;
}

void MemoryTable::abandon_after_fork() {
  grants_->abandon();
}

std::uint32_t MemoryTable::random_control_stag() {
  const std::lock_guard lock(mutex_);
  return control_stags | (random_.next() & ~control_stags);
}

// Does not reuse tombstones; grow() drops them.
void MemoryTable::insert(Table& table, Region* region) {
  const std::size_t mask = table.mask;
  std::size_t at = table.start(region->stag);
  while (is_region(table.slots[at].load(std::memory_order_relaxed)) ||
         table.slots[at].load(std::memory_order_relaxed) == gravestone()) {
    at = (at + 1) & mask;
  }
  // Pairs with find(): a reader that sees the pointer sees the region's fields.
  table.slots[at].store(region, std::memory_order_release);
}

// Copies the regions into a larger table and drops the tombstones. At most half of the entries are
// used, so probing always ends at a free one.
void MemoryTable::grow() {
  const Table& old = *table_.load();
  std::size_t entries = first_table_entries;
  while (entries < (size_ + 1) * 4) entries *= 2;
  auto larger = std::make_unique<Table>(entries);
  used_ = 0;
  for (const auto& slot : old.slots) {
    Region* region = slot.load(std::memory_order_relaxed);
    if (!is_region(region)) continue;
    insert(*larger, region);
    ++used_;
  }
  table_.store(larger.get(), std::memory_order_release);
  tables_.push_back(std::move(larger));  // the old table stays for its readers, see reclaim()
}

// Leaves a tombstone, which grow() removes.
std::uint64_t MemoryTable::remove(Region& region) {
  const std::lock_guard lock(mutex_);
  // How many tables were replaced so far. After the grace period of this removal no reader uses any
  // of them: see reclaim().
  const std::uint64_t growths = reclaimed_ + tables_.size() - 1;
  Table& table = *table_.load();
  const std::size_t mask = table.mask;
  for (std::size_t at = table.start(region.stag);; at = (at + 1) & mask) {
    const Region* entry = table.slots[at].load(std::memory_order_relaxed);
    if (entry == nullptr) return growths;
    if (entry != &region) continue;
    // Peers on this host first: the caller waits for their accesses afterwards.
    grants_->withdraw(region);
    table.slots[at].store(gravestone(), std::memory_order_release);
    --size_;
    return growths;
  }
}

// Called after each queue pair's lock was taken once, so readers that began before the removal are
// gone.
void MemoryTable::reclaim(std::uint64_t growths) {
  const std::lock_guard lock(mutex_);
  for (; reclaimed_ < growths; ++reclaimed_) tables_.erase(tables_.begin());
}

namespace {

std::uint32_t access_bit(iwarp::RemoteRight right) {
  switch (right) {
    case iwarp::RemoteRight::write:
      return IBV_ACCESS_REMOTE_WRITE;
    case iwarp::RemoteRight::read:
      return IBV_ACCESS_REMOTE_READ;
    case iwarp::RemoteRight::atomic:
      return IBV_ACCESS_REMOTE_ATOMIC;
  }
  return 0;
}

}  // namespace

// The order of the checks decides which Terminate code the peer gets: STag, domain, rights, wrap,
// bounds.
iwarp::Memory check_remote(const Region* region, const Accessor& accessor,
                           const RemoteAccess& access) {
  using iwarp::Fault;
  if (!region) return {.fault = Fault::invalid_stag};
  // Only a window's region changes while it is in the table.
  const auto lock = region->window ? region->window->lock() : std::unique_lock<std::mutex>();
  if (region->stag.load(std::memory_order_relaxed) != access.stag ||
      !region->remote_valid.load(std::memory_order_acquire)) {
    return {.fault = Fault::invalid_stag};
  }
  // RFC 5040 and RFC 5042 want an STag to be valid only for streams of its protection domain.
  if (region->domain != accessor.domain ||
      (region->window && !region->window->serves(accessor.queue_pair))) {
    return {.fault = Fault::foreign_domain};
  }
  const std::uint32_t needed = access_bit(access.right);
  // Region and queue pair must both allow it (ibv_reg_mr(3), ibv_modify_qp(3)).
  if ((region->access & needed) == 0 || (accessor.access & needed) == 0) {
    return {.fault = Fault::access};
  }
  const std::uint64_t offset = access.offset;
  if (offset + access.length_bytes < offset) return {.fault = Fault::wrap};
  // Written so that no sum can wrap around.
  if (offset < region->iova || offset - region->iova > region->length_bytes ||
      access.length_bytes > region->length_bytes - (offset - region->iova)) {
    return {.fault = Fault::bounds};
  }
  std::byte* at = region->base + (offset - region->iova);
  const bool writes = access.right != iwarp::RemoteRight::read;
  if (region->on_demand() && !bring_in(at, access.length_bytes, writes)) {
    return {.fault = Fault::bounds};
  }
  return {.at = at};
}

// Every access to a null region succeeds: reads return zeros, writes are discarded.
iwarp::Memory null_memory(const NullMemory& null, bool for_writing) {
  return {.at = for_writing ? null.sink() : null.zeros()};
}

iwarp::Memory on_demand_memory(std::byte* at, std::uint64_t length_bytes, bool for_writing) {
  if (!bring_in(at, length_bytes, for_writing)) return {.fault = iwarp::Fault::bounds};
  return {.at = at};
}

namespace {

// For sandboxes that refuse both calls: reads a byte of each page between `from` and `to`, and none
// outside, which would not be the program's to read.
bool can_read_pages(std::uintptr_t from, std::uintptr_t to, std::uintptr_t page) {
  char byte = 0;
  while (from < to) {
    if (!guarded_load(&byte, reinterpret_cast<const void*>(from), 1)) return false;
    from = (from & ~(page - 1)) + page;
  }
  return true;
}

}  // namespace

// Both calls fail with ENOMEM for an unmapped page and touch none, so they are safe for any
// address. msync(2) with MS_ASYNC does nothing else and looks at mappings; mincore(2) looks at each
// page.
int check_mapped(const void* address, std::size_t length_bytes) {
  if (length_bytes == 0) return 0;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  // The range would wrap around the address space.
  if (from + length_bytes < from) return EFAULT;
  std::uintptr_t at = from & ~(page - 1);
  const std::uintptr_t end = (from + length_bytes + page - 1) & ~(page - 1);
  if (msync(reinterpret_cast<void*>(at), end - at, MS_ASYNC) == 0) return 0;
  if (errno == ENOMEM) return EFAULT;
  std::array<unsigned char, 4096> resident;  // one byte per page; only the return value is used
  while (at < end) {
    const std::size_t step = std::min<std::size_t>(end - at, resident.size() * page);
    if (mincore(reinterpret_cast<void*>(at), step, resident.data()) != 0) {
      if (errno == ENOMEM) return EFAULT;
      catch_faults();
      return can_read_pages(std::max(at, from), from + length_bytes, page) ? 0 : EFAULT;
    }
    at += step;
  }
  return 0;
}

}  // namespace weft::device
