// The regions of a context, for peers on the same host that place and fetch data themselves.
//
// The owner publishes a table in shared memory; peers map it read-only. It holds ordinary regions
// only: those that need more than an address (windows, null and on-demand regions), and those that
// find no place, are missing, and a peer asks the owner's device to access them.
//
// A peer announces an access and then looks whether the region that it has found is still there
// (remote_copy.h). The owner withdraws a region and then waits until no announced access is left,
// so that memory is never touched after its deregistration (RFC 5042 §6.2.2).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "base/checked_store.h"
#include "device/local/access_totals.h"
#include "device/local/process_mark.h"
#include "device/local/shared_memory.h"
#include "device/memory/file_memory.h"
#include "device/memory/memory.h"

namespace weft::device {

// One region, as it lies in shared memory.
struct Grant {
  std::atomic<std::uint32_t> stag{0};  // written last; 0: no region
  std::uint32_t domain = 0;
  std::uint32_t access = 0;  // IBV_ACCESS_*
  std::uint32_t file = 0;    // FileName::descriptor and 1; 0: not memory of a file
  std::uint64_t iova = 0;
  std::uint64_t base = 0;  // in the owner's address space
  std::uint64_t length_bytes = 0;
  std::atomic<std::uint64_t> generation{0};  // of this place: it grows with each region
  std::uint64_t inode = 0;                   // of that file
  std::uint64_t file_offset_bytes = 0;       // of the region within it
};
static_assert(sizeof(Grant) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

namespace grants {
inline constexpr std::size_t entries = std::size_t{1} << 15;
inline constexpr std::size_t bytes = entries * sizeof(Grant);
// What peers have done in the region of the same place.
inline constexpr std::size_t count_bytes = entries * sizeof(AccessTotals);
// A region lies within this many places of where its STag points, or nowhere.
inline constexpr std::size_t reach = 16;
}  // namespace grants

// The owner's side. Not thread safe: the memory table's lock covers changes.
class GrantTable {
 public:
  // False where there is no shared memory: then connections of this context stay on TCP.
  [[nodiscard]] bool open();
  [[nodiscard]] bool is_open() const { return memory_.valid() && read_only_.valid(); }
  // Regions that cannot be accessed directly are left out.
  void publish(const Region& region);
  // After this no access begins that finds the region. The caller waits for those under way. May be
  // called without the lock. Adds what peers have counted to the region's counters.
  void withdraw(Region& region) const;
  // The counters of a region with what peers have counted so far.
  [[nodiscard]] MemoryRegionCounters counters(const Region& region) const;
  // A descriptor of the table that cannot be mapped for writing. Owned by this object.
  [[nodiscard]] int read_only_file() const { return read_only_.get(); }
  // Of the counts, which peers may write. Owned by this object.
  [[nodiscard]] int count_file() const { return counts_.file(); }
  // By which peers recognise this process, and this table among those of other contexts.
  [[nodiscard]] ProcessMark::Name mark() const {
    ProcessMark::Name name = mark_.name();
    name.descriptor = count_file();
    return name;
  }
  void abandon() {
    memory_.abandon();
    counts_.abandon();
    read_only_.reset();
  }

 private:
  [[nodiscard]] Grant* at(std::size_t index) const;
  [[nodiscard]] AccessTotals& count_at(std::size_t index) const;

  SharedMemory memory_;
  SharedMemory counts_;
  sys::Descriptor read_only_;
  ProcessMark mark_;
};

// A peer's side. The values are the peer's word, for its own memory.
class GrantView {
 public:
  GrantView() = default;
  GrantView(SharedMemory memory, SharedMemory counts)
      : memory_(std::move(memory)), counts_(std::move(counts)) {}

  // An access to `length_bytes` bytes at `offset`. `needed`: the rights that the region must grant.
  struct Access {
    std::uint32_t stag = 0;
    std::uint32_t domain = 0;
    std::uint64_t offset = 0;
    std::uint64_t length_bytes = 0;
    std::uint32_t needed = 0;
  };
  struct Found {
    bool known = false;  // the table has the region; otherwise only the owner's device can decide
    iwarp::Fault fault = iwarp::Fault::none;
    std::uint64_t address = 0;  // in the owner's address space
    // For still_there().
    std::size_t place = 0;
    std::uint32_t stag = 0;
    std::uint64_t generation = 0;
    // For accesses to memory that this process maps as well.
    std::uint64_t into = 0;  // the region
    std::uint64_t region_bytes = 0;
    FileName file{};
  };
  // A region as the table had it. Accesses to one region one after the other find its values here,
  // and not in memory that the owner writes.
  struct Known {
    std::uint32_t stag = 0;  // 0: none
    std::size_t place = 0;
    std::uint64_t generation = 0;
    std::uint32_t domain = 0;
    std::uint32_t access = 0;
    std::uint64_t iova = 0;
    std::uint64_t base = 0;
    std::uint64_t length_bytes = 0;
    FileName file{};
  };
  // The checks of check_remote() and check_local(), in their order. Looks at `known` first, and
  // keeps there what it has found. The region may have been withdrawn since: each access looks at
  // the table once more (still_there(), check_of()), and forgets `known` if it fails there.
  [[nodiscard]] Found look_up(const Access& access, Known& known) const;
  [[nodiscard]] Found look_up(const Access& access) const {
    Known fresh;
    return look_up(access, fresh);
  }
  // Whether the region that look_up() has found is still granted, unchanged. After the announcement
  // of an access, true means that the owner will wait for the end of that access.
  [[nodiscard]] bool still_there(const Found& found) const;
  // Whether look_up() would allow the access by what is known of the region alone, and that is
  // still there.
  [[nodiscard]] bool allows(const Access& access, const Known& known) const {
    if (known.stag != access.stag || known.stag == 0) return false;
    const Grant& grant = at(known.place);
    return check(access, known) == iwarp::Fault::none &&
           grant.stag.load(std::memory_order_seq_cst) == known.stag &&
           grant.generation.load(std::memory_order_relaxed) == known.generation;
  }
  // Whether a place still has the region of that generation.
  [[nodiscard]] bool has(std::size_t place, std::uint64_t generation) const;
  // What still_there() looks at, for checked_store.h.
  [[nodiscard]] StoreCheck check_of(const Found& found, const void* open) const;
  // Counts accesses to a region that was found, unless it has been withdrawn since.
  void count(std::size_t place, std::uint64_t generation, iwarp::RemoteRight right,
             const Traffic& accesses) const;
  void abandon() {
    memory_.abandon();
    counts_.abandon();
  }

 private:
  [[nodiscard]] const Grant& at(std::size_t index) const {
    return std::launder(reinterpret_cast<const Grant*>(memory_.data()))[index];
  }
  [[nodiscard]] static iwarp::Fault check(const Access& access, const Known& known) {
    using iwarp::Fault;
    if (known.domain != access.domain) return Fault::foreign_domain;
    if ((known.access & access.needed) != access.needed) return Fault::access;
    // Before the bounds, whose comparison would be wrong with a sum that wraps around.
    if (access.offset + access.length_bytes < access.offset) return Fault::wrap;
    const std::uint64_t into = access.offset - known.iova;
    if (access.offset < known.iova || into > known.length_bytes ||
        access.length_bytes > known.length_bytes - into) {
      return Fault::bounds;
    }
    return Fault::none;
  }
  // False where the table does not have it; `known` is unchanged then.
  [[nodiscard]] bool find(std::uint32_t stag, Known& known) const;

  SharedMemory memory_;
  SharedMemory counts_;
};

}  // namespace weft::device
