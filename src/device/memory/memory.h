// Registered memory: maps STags to regions and checks every access (RFC 5040 §8, RFC 5042).
//
// Lookups are lock-free and happen under some queue pair's lock. A region is removed in two steps:
// it leaves the table, then every queue pair's lock is taken once (see Context); after this grace
// period no thread can still use it. So an access on the data path needs no reference count, and
// deregistration waits for placements in progress.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/kept_memory.h"
#include "base/kernel_random.h"
#include "device/adapter.h"
#include "device/memory/context_file.h"
#include "device/memory/file_memory.h"
#include "device/memory/heap_memory.h"
#include "iwarp/host.h"
#include "weft/counters.hpp"

namespace weft::device {

class GrantTable;
class MemoryWindow;
class NullMemory;

// Counts the peers' accesses to a region. Atomic, because several queue pairs access it under
// different locks.
class RegionCounters {
 public:
  void add(const iwarp::PeerAccess& access) {
    Counter& counter = counters_[static_cast<std::size_t>(access.right)];
    counter.bytes.fetch_add(access.bytes, std::memory_order_relaxed);
    if (access.last) counter.operations.fetch_add(1, std::memory_order_relaxed);
  }
  void add(iwarp::RemoteRight right, const Traffic& traffic) {
    Counter& counter = counters_[static_cast<std::size_t>(right)];
    counter.bytes.fetch_add(traffic.bytes, std::memory_order_relaxed);
    counter.operations.fetch_add(traffic.operations, std::memory_order_relaxed);
  }
  // Without those that peers on this host count: see GrantTable::counters().
  [[nodiscard]] MemoryRegionCounters values() const {
    const auto of = [this](iwarp::RemoteRight right) {
      const Counter& counter = counters_[static_cast<std::size_t>(right)];
      return Traffic{counter.operations.load(), counter.bytes.load()};
    };
    return {.peer_writes = of(iwarp::RemoteRight::write),
            .peer_reads = of(iwarp::RemoteRight::read),
            .peer_atomics = of(iwarp::RemoteRight::atomic)};
  }

 private:
  struct Counter {
    std::atomic<std::uint64_t> operations{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  std::array<Counter, 3> counters_;  // index: iwarp::RemoteRight
};

// A registered memory region, or the current binding of a memory window. Apart from the atomic
// members it does not change while it is in the table, except for a window's (guarded by the
// window's lock).
struct Region : KeptMemory {
  ibv_mr mr{};                         // first: an ibv_mr* is a Region*
  std::atomic<std::uint32_t> stag{0};  // in the table; a window gets a new one with each bind
  std::uint32_t domain = 0;
  std::uint32_t access = 0;  // IBV_ACCESS_*
  std::uint64_t iova = 0;    // address of the first byte in requests
  std::byte* base = nullptr;
  std::uint64_t length_bytes = 0;
  // False for a window that is not bound, or was invalidated (RFC 5040 §5.3).
  std::atomic<bool> remote_valid{true};
  // set if this is a window's region; its lock guards what a bind changes
  MemoryWindow* window = nullptr;
  std::atomic<int> windows{0};         // windows that are bound to this region
  NullMemory* null = nullptr;          // set for a null region
  std::shared_ptr<FileMemory> file;    // set for memory of a file, which the device has mapped
  HeapMemory heap;                     // set for memory of the process's shared heap
  std::atomic<int>* holder = nullptr;  // user count of the device memory that it refers to
  std::atomic<bool> leaving{false};    // set while it is deregistered or changed: no bind
  Listed listed;                       // in the context's file, for other processes
  RegionCounters counters;
  Counted counted;  // of the adapter's regions or windows

  // Where peers on this host can map it; not valid if they cannot.
  [[nodiscard]] FileName file_name() const { return file ? file->name() : heap.name(); }
  [[nodiscard]] bool on_demand() const { return (access & IBV_ACCESS_ON_DEMAND) != 0; }
  [[nodiscard]] static Region* of(ibv_mr* mr) { return reinterpret_cast<Region*>(mr); }
};

// All regions of a context by STag. Modifications take a lock; find() is lock-free.
class MemoryTable {
 public:
  MemoryTable();
  ~MemoryTable();
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // Assigns an unguessable STag (RFC 5042) and adds the region; false if the table is full. The
  // table does not own the region.
  bool add(Region& region);
  // Adds a region with the STag of another process's; false if the table has it or is full.
  bool add_foreign(Region& region, std::uint32_t stag);
  // The region with exactly this lkey, no window; null if there is none. It stays valid until it is
  // deregistered.
  [[nodiscard]] Region* find_local(std::uint32_t lkey);
  // A random STag from the range that regions never use, for control words.
  [[nodiscard]] std::uint32_t random_control_stag();
  // Adds a removed region again with its previous STag.
  void restore(Region& region);
  // Makes the regions visible to peers on this host, from now on. False if there is no shared
  // memory. Changes nothing on a second call.
  bool open_grants();
  [[nodiscard]] const GrantTable& grants() const { return *grants_; }
  // In the child after fork(): forgets what is shared with peers.
  void abandon_after_fork();
  // Removes a region. After a grace period no thread uses it any more. Returns the number of times
  // the table has grown.
  std::uint64_t remove(Region& region);
  // To be called after that grace period with the result of remove(): frees the tables that were
  // replaced before it. Tables that were replaced later may still have readers.
  void reclaim(std::uint64_t growths);

  // Returns the region with this STag (the lowest 8 bits may differ), or null. The pointer is valid
  // until the caller releases its queue pair's lock.
  [[nodiscard]] const Region* find(std::uint32_t stag) const { return find_entry(stag); }
  [[nodiscard]] Region* find(std::uint32_t stag) { return find_entry(stag); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  // A hash table with open addressing and linear probing. A removed entry becomes a tombstone, so
  // that concurrent readers continue past it.
  struct Table {
    explicit Table(std::size_t entries) : slots(entries), mask(entries - 1) {}
    std::vector<std::atomic<Region*>> slots;
    const std::size_t mask;

    [[nodiscard]] std::size_t start(std::uint32_t stag) const {
      return (stag >> 8) & mask;  // the upper 24 bits are random
    }
  };
  // Never a valid address, and different from null, which ends a probe sequence.
  [[nodiscard]] static Region* gravestone() { return reinterpret_cast<Region*>(std::uintptr_t{1}); }
  [[nodiscard]] static bool is_region(const Region* entry) {
    return reinterpret_cast<std::uintptr_t>(entry) > 1;
  }
  // Compares the upper 24 bits only; check_remote() and check_local() compare the consumer's key.
  [[nodiscard]] Region* find_entry(std::uint32_t stag) const {
    const Table& table = *table_.load(std::memory_order_acquire);
    for (std::size_t at = table.start(stag);; at = (at + 1) & table.mask) {
      Region* const entry = table.slots[at].load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (is_region(entry) && (entry->stag.load(std::memory_order_relaxed) ^ stag) < 0x100) {
        return entry;
      }
    }
  }
  void insert(Table& table, Region* region);
  void insert_new(Region& region);
  void grow();

  std::atomic<Table*> table_;
  std::mutex mutex_;
  std::size_t size_ = 0;
  std::size_t used_ = 0;                        // entries that are not free: regions and tombstones
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is in use
  std::uint64_t reclaimed_ = 0;                 // number of tables that were freed
  KernelRandom random_;                         // under the lock
  std::unique_ptr<GrantTable> grants_;
};

// The queue pair that an access is made for.
struct Accessor {
  std::uint32_t domain = 0;      // number of its protection domain
  std::uint32_t queue_pair = 0;  // its number
  std::uint32_t access = 0;      // IBV_ACCESS_* that the queue pair grants its peer
};

// An access by a remote peer.
struct RemoteAccess {
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  iwarp::RemoteRight right = iwarp::RemoteRight::write;
};

// Check an access against a region, which is the result of find() and may be null. The faults are
// in the order of the error codes of RFC 5040 §4.8.
[[nodiscard]] iwarp::Memory check_remote(const Region* region, const Accessor& accessor,
                                         const RemoteAccess& access);
[[nodiscard]] inline iwarp::Memory check_local(const Region* region, std::uint32_t domain,
                                               const iwarp::LocalSlice& slice, bool for_writing);
// The memory of a special region that check_local() allows: a null region, or one on demand, where
// `at` is brought in.
[[nodiscard]] iwarp::Memory null_memory(const NullMemory& null, bool for_writing);
[[nodiscard]] iwarp::Memory on_demand_memory(std::byte* at, std::uint64_t length_bytes,
                                             bool for_writing);

// Checks that [address, address + length) is mapped: 0 or EFAULT.
[[nodiscard]] int check_mapped(const void* address, std::size_t length_bytes);
// Checks in addition that the first page can be read, or written: 0 or EFAULT. An adapter pins all
// pages. Here that would give memory to pages that are never used, such as most of a ring.
[[nodiscard]] int check_accessible(void* address, std::size_t length_bytes, bool for_writing);

// Inline, because each request makes it. A window's STag is an rkey only.
iwarp::Memory check_local(const Region* region, std::uint32_t domain,
                          const iwarp::LocalSlice& slice, bool for_writing) {
  using iwarp::Fault;
  if (!region || region->window || region->mr.lkey != slice.lkey) {
    return {.fault = Fault::invalid_stag};
  }
  if (region->domain != domain) return {.fault = Fault::foreign_domain};
  if (region->null) [[unlikely]]
    return null_memory(*region->null, for_writing);
  if (for_writing && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return {.fault = Fault::access};
  }
  const std::uint64_t offset = slice.address - region->iova;
  // The subtraction above may have wrapped around; the first comparison rejects that.
  if (slice.address < region->iova || offset > region->length_bytes ||
      slice.length_bytes > region->length_bytes - offset) {
    return {.fault = Fault::bounds};
  }
  std::byte* const at = region->base + offset;
  if (region->on_demand()) [[unlikely]]
    return on_demand_memory(at, slice.length_bytes, for_writing);
  return {.at = at};
}

}  // namespace weft::device
