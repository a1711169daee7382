#include "device/local/grant_table.h"

#include <new>

namespace weft::device {
namespace {

// The upper 24 bits of an STag are random.
std::size_t start_of(std::uint32_t stag) {
  return (stag >> 8) & (grants::entries - 1);
}

// Open addressing with a short reach: a peer looks at a bounded number of places, also for an STag
// that does not exist.
std::size_t place(std::uint32_t stag, std::size_t step) {
  return (start_of(stag) + step) & (grants::entries - 1);
}

// The values of a place change while a peer may still read those of its previous region. Each is
// visible only after that region has left, and is read before the peer looks whether it has.
template <typename T>
void store(T& place, T value) {
  std::atomic_ref(place).store(value, std::memory_order_release);
}

template <typename T>
T load(const T& place) {
  return std::atomic_ref(const_cast<T&>(place)).load(std::memory_order_acquire);
}

// Adds the count to `into`.
void add(const AccessTotals::Count& count, Traffic& into) {
  into.operations += count.operations.load(std::memory_order_relaxed);
  into.bytes += count.bytes.load(std::memory_order_relaxed);
}

// Moves the count to the region's own counters.
void fold(AccessTotals::Count& count, iwarp::RemoteRight right, Region& region) {
  region.counters.add(
      right, {.operations = count.operations.exchange(0), .bytes = count.bytes.exchange(0)});
}

// Windows move, on-demand memory may have no pages yet, and null memory has none at all: those
// accesses go to the device that owns them.
bool directly_accessible(const Region& region) {
  return !region.window && !region.null && !region.on_demand() && region.remote_valid;
}

}  // namespace

// Each part is made once and kept: a second call after a failure continues where the first one
// stopped.
bool GrantTable::open() {
  if (!mark_.make()) return false;
  if (!counts_.valid()) counts_ = SharedMemory::create("weft-counts", grants::count_bytes);
  if (!counts_.valid()) return false;
  if (!memory_.valid()) memory_ = SharedMemory::create("weft-grants", grants::bytes);
  if (!memory_.valid()) return false;
  if (!read_only_.valid()) read_only_ = memory_.read_only_file();
  return read_only_.valid();
}

AccessTotals& GrantTable::count_at(std::size_t index) const {
  return std::launder(reinterpret_cast<AccessTotals*>(counts_.data()))[index];
}

Grant* GrantTable::at(std::size_t index) const {
  return std::launder(reinterpret_cast<Grant*>(memory_.data())) + index;
}

// The STag is written last, with release: a peer that finds it sees the values of this region. A
// region that finds no place within reach is not published, and the peer asks the device.
void GrantTable::publish(const Region& region) {
  if (!memory_.valid() || !directly_accessible(region)) return;
  const std::uint32_t stag = region.stag.load(std::memory_order_relaxed);
  for (std::size_t step = 0; step < grants::reach; ++step) {
    Grant& grant = *at(place(stag, step));
    if (grant.stag.load(std::memory_order_relaxed) != 0) continue;
    const std::uint64_t generation = grant.generation.load(std::memory_order_relaxed) + 1;
    // Before the values, so that a reader of the previous region notices the change.
    grant.generation.store(generation, std::memory_order_release);
    store(grant.domain, region.domain);
    store(grant.access, region.access);
    store(grant.iova, region.iova);
    store(grant.base, reinterpret_cast<std::uint64_t>(region.base));
    store(grant.length_bytes, region.length_bytes);
    const FileName file = region.file_name();
    store(grant.file, static_cast<std::uint32_t>(file.descriptor + 1));
    store(grant.inode, file.inode);
    store(grant.file_offset_bytes, file.offset_bytes);
    grant.stag.store(stag, std::memory_order_release);
    return;
  }
}

// The caller waits for announced accesses afterwards (LocalConnection::await_access()).
void GrantTable::withdraw(Region& region) const {
  if (!memory_.valid()) return;
  const std::uint32_t stag = region.stag.load(std::memory_order_relaxed);
  for (std::size_t step = 0; step < grants::reach; ++step) {
    Grant& grant = *at(place(stag, step));
    // Sequentially consistent, as the announcement is: either the peer does not find the region, or
    // the caller sees its announcement.
    std::uint32_t found = stag;
    if (!grant.stag.compare_exchange_strong(found, 0, std::memory_order_seq_cst)) continue;
    // The peers count their own accesses; the region takes the numbers over before the place is
    // used again.
    AccessTotals& count = count_at(place(stag, step));
    fold(count.writes, iwarp::RemoteRight::write, region);
    fold(count.reads, iwarp::RemoteRight::read, region);
    fold(count.atomics, iwarp::RemoteRight::atomic, region);
    return;
  }
}

// Regions that are published have a part of their counts in memory shared with peers.
MemoryRegionCounters GrantTable::counters(const Region& region) const {
  MemoryRegionCounters all = region.counters.values();
  if (!memory_.valid()) return all;
  const std::uint32_t stag = region.stag.load(std::memory_order_relaxed);
  for (std::size_t step = 0; step < grants::reach; ++step) {
    if (at(place(stag, step))->stag.load(std::memory_order_acquire) != stag) continue;
    const AccessTotals& count = count_at(place(stag, step));
    add(count.writes, all.peer_writes);
    add(count.reads, all.peer_reads);
    add(count.atomics, all.peer_atomics);
    break;
  }
  return all;
}

// The place may get another region while its values are read; the STag or the generation is then
// not the same any more.
bool GrantView::find(std::uint32_t stag, Known& known) const {
  if (stag == 0) return false;
  for (std::size_t step = 0; step < grants::reach; ++step) {
    const Grant& grant = at(place(stag, step));
    if (grant.stag.load(std::memory_order_acquire) != stag) continue;
    const Known values{.stag = stag,
                       .place = place(stag, step),
                       .generation = grant.generation.load(std::memory_order_acquire),
                       .domain = load(grant.domain),
                       .access = load(grant.access),
                       .iova = load(grant.iova),
                       .base = load(grant.base),
                       .length_bytes = load(grant.length_bytes),
                       .file = {.descriptor = static_cast<int>(load(grant.file) - 1),
                                .inode = load(grant.inode),
                                .offset_bytes = load(grant.file_offset_bytes)}};
    if (grant.stag.load(std::memory_order_relaxed) != stag ||
        grant.generation.load(std::memory_order_relaxed) != values.generation) {
      return false;
    }
    known = values;
    return true;
  }
  return false;
}

// A count that comes later than the end of its region would go to the next region of the place.
void GrantView::count(std::size_t place, std::uint64_t generation, iwarp::RemoteRight right,
                      const Traffic& accesses) const {
  if (!has(place, generation)) return;
  AccessTotals& counted = std::launder(reinterpret_cast<AccessTotals*>(counts_.data()))[place];
  AccessTotals::Count& count = right == iwarp::RemoteRight::write  ? counted.writes
                               : right == iwarp::RemoteRight::read ? counted.reads
                                                                   : counted.atomics;
  count.operations.fetch_add(accesses.operations, std::memory_order_relaxed);
  count.bytes.fetch_add(accesses.bytes, std::memory_order_relaxed);
}

// Read after the announcement, sequentially consistent with it: see GrantTable::withdraw().
bool GrantView::still_there(const Found& found) const {
  const Grant& grant = at(found.place);
  return grant.stag.load(std::memory_order_seq_cst) == found.stag &&
         grant.generation.load(std::memory_order_relaxed) == found.generation;
}

bool GrantView::has(std::size_t place, std::uint64_t generation) const {
  const Grant& grant = at(place);
  return grant.stag.load(std::memory_order_acquire) != 0 &&
         grant.generation.load(std::memory_order_acquire) == generation;
}

StoreCheck GrantView::check_of(const Found& found, const void* open) const {
  const Grant& grant = at(found.place);
  return {.open = open,
          .stag = &grant.stag,
          .stag_value = found.stag,
          .generation = &grant.generation,
          .generation_value = found.generation};
}

// The side that accesses makes the checks here: the same ones in the same order as check_remote()
// makes them for TCP.
GrantView::Found GrantView::look_up(const Access& access, Known& known) const {
  using iwarp::Fault;
  const bool remembered = known.stag == access.stag && known.stag != 0;
  Fault fault = remembered ? check(access, known) : Fault::bounds;
  if (fault != Fault::none) {
    // Not remembered, or the owner may have registered the region again with other bounds or
    // rights: a refusal needs the values of now.
    if (!find(access.stag, known)) return {};
    fault = check(access, known);
  }
  if (fault != Fault::none) return {true, fault};
  Found found;
  found.known = true;
  found.into = access.offset - known.iova;
  found.address = known.base + found.into;
  found.place = known.place;
  found.stag = known.stag;
  found.generation = known.generation;
  found.region_bytes = known.length_bytes;
  found.file = known.file;
  return found;
}

}  // namespace weft::device
